const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;

/** Behind the closing quote of the string that begins at `at`. */
function endOfString(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return end + 1;
  }
  return text.length;
}

const isBlank = (code: number): boolean => code <= 0x20;

/** Behind the value that begins at `at`, which is followed by a comma or a bracket. */
function endOfValue(text: string, at: number): number {
  let depth = 0;
  let end = at;
  while (end < text.length) {
    const code = text.charCodeAt(end);
    if (code === QUOTE) {
      end = endOfString(text, end);
      continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_LIST) depth += 1;
    else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
      if (depth === 0) break;
      depth -= 1;
    } else if (code === COMMA && depth === 0) break;
    end += 1;
  }
  while (end > at && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return end;
}

/**
 * A member of an object as it was written: parsed and written again, a number of twenty digits
 * would be another one. The text must be JSON, and of an object. Undefined when it has no such
 * member; of several the last counts, as for everybody who parses JSON.
 */
export function memberText(text: string, name: string): string | undefined {
  let found: string | undefined;
  let at = text.indexOf("{") + 1;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code !== QUOTE) {
      at += 1; // A blank, a comma, or the end of the object.
      continue;
    }
    const keyEnd = endOfString(text, at);
    const key = text.slice(at + 1, keyEnd - 1);
    let start = keyEnd;
    while (isBlank(text.charCodeAt(start)) || text.charCodeAt(start) === COLON) start += 1;
    const end = endOfValue(text, start);
    const isNamed = key.includes("\\") ? JSON.parse(`"${key}"`) === name : key === name;
    if (isNamed) found = text.slice(start, end);
    at = end;
  }
  return found;
}
