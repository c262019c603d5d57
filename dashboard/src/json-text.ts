/**
 * JSON as text. To parse a payload and to write it again would change numbers of twenty digits,
 * and what a person edits must be what is stored.
 */

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** The members of an object, each as it was written. The text is JSON. */
export function rawMembers(text: string): ReadonlyMap<string, string> {
  const members = new Map<string, string>();
  let depth = 0;
  let name: string | undefined;
  let start = 0;
  let before = "";
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const isEnd = (depth === 1 && token === ",") || (depth === 1 && token === "}");
    if (isEnd && name !== undefined) {
      members.set(name, text.slice(start, index).trim());
      name = undefined;
    } else if (depth === 1 && token === ":" && name === undefined) {
      name = JSON.parse(before) as string;
      start = index + 1;
    }
    if (token === "{" || token === "[") depth += 1;
    if (token === "}" || token === "]") depth -= 1;
    before = token;
  }
  return members;
}

/** The same with line breaks and blanks, two for each level. */
export function indentJson(text: string): string {
  let depth = 0;
  let out = "";
  let before = "";
  const newline = (): string => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(TOKEN)) {
    const isOpened = before === "{" || before === "[";
    if (token === "}" || token === "]") {
      depth -= 1;
      out += isOpened ? token : newline() + token;
    } else {
      if (isOpened || before === ",") out += newline();
      out += token === ":" ? ": " : token;
      if (token === "{" || token === "[") depth += 1;
    }
    before = token;
  }
  return out;
}
