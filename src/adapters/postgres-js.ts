import { ConfigError } from "../base/errors.ts";
import type { SqlExecutor } from "../db/executor.ts";

/** What we call of a postgres.js transaction. Only transactions have `savepoint`. */
export interface PostgresJsTransaction {
  typed(value: string | null, type: number): unknown;
  unsafe(text: string, values?: unknown[], options?: { prepare: boolean }): PostgresJsQuery;
  readonly savepoint: (...given: never[]) => unknown;
}

export interface PostgresJsQuery {
  raw(): PromiseLike<PostgresJsRows>;
}

export interface PostgresJsRows extends Iterable<unknown> {
  readonly columns: readonly { readonly name: string; readonly type: number }[];
}

/** The type of a parameter that the server infers, and for which postgres.js has no serializer. */
const UNKNOWN = 705;

/**
 * The `sql` that `sql.begin()` gives its function. Parameters and rows are encoded here, as
 * node-postgres does: postgres.js would encode JSON text once more, and its settings `types` and
 * `transform` are the user's, who may have bigints or camel case in mind.
 */
export function fromPostgresJs(sql: PostgresJsTransaction): SqlExecutor {
  if (typeof sql?.savepoint !== "function" || typeof sql.unsafe !== "function") {
    throw new ConfigError(
      "fromPostgresJs needs the sql that sql.begin() gives its function, not sql itself",
    );
  }
  return {
    query: async (text, values = []) => {
      const parameters = values.map((value) => sql.typed(encode(value), UNKNOWN));
      try {
        return { rows: decodeRows(await sql.unsafe(text, parameters, { prepare: true }).raw()) };
      } catch (error) {
        throw named(error);
      }
    },
  };
}

/** The constraint where node-postgres has it too. */
function named(error: unknown): unknown {
  if (error instanceof Error && "constraint_name" in error) {
    Object.assign(error, { constraint: error.constraint_name });
  }
  return error;
}

function encode(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  if (ArrayBuffer.isView(value)) {
    const { buffer, byteOffset, byteLength } = value;
    return `\\x${Buffer.from(buffer, byteOffset, byteLength).toString("hex")}`;
  }
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return `{${value.map(encodeElement).join(",")}}`;
  return typeof value === "object" ? JSON.stringify(value) : `${value as string | number}`;
}

function encodeElement(value: unknown): string {
  const text = encode(value);
  if (text === null) return "NULL";
  return Array.isArray(value) ? text : `"${text.replaceAll(/["\\]/g, "\\$&")}"`;
}

function decodeRows(rows: PostgresJsRows): unknown[] {
  return Array.from(rows, (row) => {
    if (!Array.isArray(row)) {
      throw new ConfigError(
        "transform.row of postgres() changes rows that tidemill reads; " +
          "use a postgres() without it for this transaction",
      );
    }
    const values = row as readonly (Uint8Array | null)[];
    const entries = rows.columns.map(({ name, type }, index) => {
      const bytes = values[index] ?? null;
      const value = bytes === null ? null : decode(Buffer.from(bytes).toString("utf8"), type);
      return [snakeCase(name), value] as const;
    });
    return Object.fromEntries(entries);
  });
}

/** Our statements name columns in snake case; `transform.column` may have renamed them. */
function snakeCase(name: string): string {
  return name
    .replaceAll(/[A-Z]/g, (letter, at: number) => (at > 0 ? "_" : "") + letter.toLowerCase())
    .replaceAll("-", "_");
}

const DECODERS = new Map<number, (text: string) => unknown>([
  [16, (text) => text === "t"],
  [17, (text) => Buffer.from(text.slice(2), "hex")],
  [21, Number],
  [23, Number],
  [26, Number],
  [700, Number],
  [701, Number],
  [114, (text) => JSON.parse(text) as unknown],
  [3802, (text) => JSON.parse(text) as unknown],
  [1114, (text) => new Date(text)],
  [1184, (text) => new Date(text)],
]);

/** Types of arrays, with the types of their elements. */
const ELEMENTS = new Map([
  [1000, 16],
  [1001, 17],
  [1005, 21],
  [1007, 23],
  [1009, 25],
  [1015, 1043],
  [1016, 20],
  [1185, 1184],
  [2951, 2950],
  [3807, 3802],
]);

/** Everything else stays text: 64-bit integers do not fit a number. */
function decode(text: string, type: number): unknown {
  const element = ELEMENTS.get(type);
  if (element === undefined) return (DECODERS.get(type) ?? String)(text);
  return Array.from(text.matchAll(/"((?:[^"\\]|\\.)*)"|[^{},]+/gs), ([bare, quoted]) => {
    if (quoted === undefined && bare === "NULL") return null;
    return decode(quoted?.replaceAll(/\\(.)/gs, "$1") ?? bare, element);
  });
}
