import { ConfigError, InvalidInputError } from "../../base/errors.ts";
import { parseTableName, quoteIdentifier, quoteTable } from "../../base/identifier.ts";

/** Where the handler of a rebuild's partition writes. */
export interface RebuildTarget {
  readonly id: string;
  /** The projection that is rebuilt. */
  readonly consumer: string;
  /** Of the copies. */
  readonly schema: string;
  /** The tables that were declared when it started. */
  readonly declared: readonly string[];
}

/** A table as it was declared. */
export interface DeclaredTable {
  /** Undefined: wherever the search path finds it. */
  readonly schema: string | undefined;
  readonly table: string;
}

const TABLES_MAX = 100;

export function parseDeclared(text: string): DeclaredTable {
  const { schema, table } = parseTableName(text, "public");
  return { schema: text.includes(".") ? schema : undefined, table };
}

/** Copies stand side by side in one schema, so a name may be declared once. */
export function checkTables(consumer: string, tables: readonly string[]): void {
  const isList = Array.isArray(tables) && tables.every((one) => typeof one === "string");
  if (!isList || tables.length === 0 || tables.length > TABLES_MAX) {
    throw new ConfigError(
      `tables of consumer "${consumer}" must be a list of 1 to ${TABLES_MAX} names: ` +
        'tables: ["order_view"]',
    );
  }
  const seen = new Set<string>();
  for (const { table } of tables.map(parseDeclared)) {
    if (seen.has(table)) {
      throw new ConfigError(`tables of consumer "${consumer}" name ${JSON.stringify(table)} twice`);
    }
    seen.add(table);
  }
}

interface Declaring {
  readonly name: string;
  readonly tables?: readonly string[];
}

/** The live table, or its copy if a schema is given, as SQL is to spell it. */
export function spellTable(
  { name: consumer, tables = [] }: Declaring,
  name: string,
  schema: string | undefined,
): string {
  const wanted = parseDeclared(name);
  const found = tables
    .map(parseDeclared)
    .find(
      (one) =>
        one.table === wanted.table && (wanted.schema === undefined || wanted.schema === one.schema),
    );
  if (found === undefined) {
    throw new InvalidInputError(
      `consumer ${consumer} does not declare table ${JSON.stringify(name)}; ` +
        `add it to tables: [${tables.map((one) => JSON.stringify(one)).join(", ")}]`,
    );
  }
  const place = schema ?? found.schema;
  return place === undefined
    ? quoteIdentifier(found.table)
    : quoteTable({ schema: place, table: found.table });
}

/** Whether the program that runs the rebuild declares what was declared when it started. */
export function isSameDeclaration(tables: readonly string[], target: RebuildTarget): boolean {
  const spelled = (all: readonly string[]): string =>
    JSON.stringify(all.map(parseDeclared).sort((a, b) => (a.table < b.table ? -1 : 1)));
  return spelled(tables) === spelled(target.declared);
}
