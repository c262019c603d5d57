import type { Names } from "./names.ts";

/** One SQL statement of the product: its name is the prepared name, metric label and log field. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

export function statement(name: string, text: string): Statement {
  return { name, text };
}

const rendered = new WeakMap<Names, Map<Statement, string>>();

/** The text with `{words}` replaced by configured names, rendered once per configuration. */
export function renderStatement(statement: Statement, names: Names): string {
  let texts = rendered.get(names);
  if (texts === undefined) {
    texts = new Map();
    rendered.set(names, texts);
  }
  let text = texts.get(statement);
  if (text === undefined) {
    text = splice(statement.text, names.splices);
    texts.set(statement, text);
  }
  return text;
}

/** Unknown `{words}` are a bug of ours, not of the caller. */
export function splice(text: string, splices: Readonly<Record<string, string>>): string {
  return text.replace(/\{([a-z_]+)\}/g, (_, word: string) => {
    const value = splices[word];
    if (value === undefined) throw new Error(`SQL splice {${word}} is not defined`);
    return value;
  });
}
