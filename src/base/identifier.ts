import { ConfigError } from "./errors.ts";

declare const quoted: unique symbol;
/** SQL text that is safe to splice: produced only by the functions of this file. */
export type QuotedIdentifier = string & { readonly [quoted]: true };

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_$-]*$/;

/**
 * Quotes a schema, table or channel name that came from configuration. Refuses instead of
 * repairing: 63 bytes is PostgreSQL's own limit, past which it truncates silently and two names
 * can collide.
 */
export function quoteIdentifier(name: string): QuotedIdentifier {
  if (!IDENTIFIER.test(name) || name.includes("$$")) {
    throw new ConfigError(
      `${JSON.stringify(name)} is not a usable SQL name: use letters, digits, "_", "-" and ` +
        'single "$", starting with a letter or _',
    );
  }
  if (Buffer.byteLength(name) > 63) {
    throw new ConfigError(`${JSON.stringify(name)} is longer than PostgreSQL's 63 bytes`);
  }
  return `"${name}"` as QuotedIdentifier;
}

/** A table name that may carry its schema. */
export interface TableName {
  readonly schema: string;
  readonly table: string;
}

/** Reads `table` or `schema.table`; parts may be wrapped in double quotes. */
export function parseTableName(text: string, defaultSchema: string): TableName {
  const parts = text.split(".").map((part) => part.replace(/^"(.*)"$/, "$1"));
  const [first, second, ...rest] = parts;
  if (first === undefined || rest.length > 0) {
    throw new ConfigError(`${JSON.stringify(text)} is not a table name: use table or schema.table`);
  }
  const name =
    second === undefined
      ? { schema: defaultSchema, table: first }
      : { schema: first, table: second };
  quoteIdentifier(name.schema);
  quoteIdentifier(name.table);
  return name;
}

export function quoteTable({ schema, table }: TableName): QuotedIdentifier {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(table)}` as QuotedIdentifier;
}

/**
 * A name derived from a table's, such as an index or a trigger. Long tables keep a hash of the
 * whole, so that two tables with one prefix do not share an index name.
 */
export function derivedName(prefix: string, table: string, suffix: string): string {
  const whole = `${prefix}${table.replace(/[^A-Za-z0-9_$]/g, "_")}${suffix}`;
  if (Buffer.byteLength(whole) <= 63) return whole;
  const tail = `_${fnv1a(whole).toString(36)}${suffix}`;
  return whole.slice(0, 63 - tail.length) + tail;
}

const FNV_START = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** FNV-1a, 32 bits, over UTF-8. Stable across processes and languages. */
export function fnv1a(text: string): number {
  let hash = FNV_START;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit > 0x7f) return hashBytes(new TextEncoder().encode(text));
    hash = Math.imul(hash ^ unit, FNV_PRIME);
  }
  return hash >>> 0;
}

function hashBytes(bytes: Uint8Array): number {
  let hash = FNV_START;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, FNV_PRIME);
  return hash >>> 0;
}

/** FNV-1a with a final mix: neighbouring inputs land in unrelated remainders. */
export function mixedHash(text: string): number {
  let hash = fnv1a(text);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
