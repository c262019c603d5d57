import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { resolveNames } from "../db/names.ts";
import { renderStatement, splice, statement } from "../db/statement.ts";
import { ConfigError } from "./errors.ts";
import {
  derivedName,
  fnv1a,
  mixedHash,
  parseTableName,
  quoteIdentifier,
  quoteTable,
} from "./identifier.ts";

/** A statement's tokens, with quoted identifiers reduced to one letter: its shape. */
function shapeOf(sql: string): string[] {
  const tokens: string[] = [];
  const token = /"((?:[^"]|"")*)"|'((?:[^']|'')*)'|--[^\n]*|\/\*|\*\/|[A-Za-z_]\w*|\d+|\S/g;
  for (const [text] of sql.matchAll(token)) tokens.push(text.startsWith('"') ? "I" : text);
  return tokens;
}

const hostile = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(
    'x"; DROP TABLE events; --',
    'a""b',
    "x\\",
    "x\u0000",
    "x/*",
    "'",
    "$1",
    "$$",
    "{schema}",
    "x\n",
    "\u201Dx",
    "",
    "1x",
    "tidemill",
    "a-b_c$1",
  ),
  fc.stringMatching(/^[A-Za-z_"'.$-]{1,70}$/),
);

const usable = fc
  .stringMatching(/^[A-Za-z_][A-Za-z0-9_$-]{0,62}$/)
  .filter((name) => !name.includes("$$"));

const TEXT = "SELECT 1 FROM {events} WHERE a = '{events}'::regclass";
const PLAIN = shapeOf('SELECT 1 FROM "s"."t" WHERE a = \'x\'::regclass');

describe("quoteIdentifier", () => {
  it.each(["events", "_x", "My-Table", "a$b", "A".repeat(63)])("accepts %s", (name) => {
    expect(quoteIdentifier(name)).toBe(`"${name}"`);
  });

  it.each(["", "1a", 'a"b', "a b", "a.b", "é", "a;b", "a\n", "A".repeat(64), "-a", "a$$b"])(
    "refuses %j instead of repairing it",
    (name) => {
      expect(() => quoteIdentifier(name)).toThrow(ConfigError);
    },
  );

  it("never lets a name change the shape of a statement", () => {
    let accepted = 0;
    fc.assert(
      fc.property(hostile, (name) => {
        let quoted: string;
        try {
          quoted = quoteIdentifier(name);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          return;
        }
        accepted += 1;
        expect(shapeOf(`SELECT * FROM ${quoted} WHERE a = $1`)).toEqual(
          shapeOf('SELECT * FROM "x" WHERE a = $1'),
        );
        expect(Buffer.byteLength(name)).toBeLessThanOrEqual(63);
      }),
      { numRuns: 2_000 },
    );
    expect(accepted).toBeGreaterThan(20);
  });

  it("never lets a configured table change the shape of a rendered statement", () => {
    fc.assert(
      fc.property(hostile, hostile, (schema, table) => {
        let text: string;
        try {
          const names = resolveNames({ schema, tables: { events: table } });
          text = renderStatement(statement("test", TEXT), names);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          return;
        }
        const shape = shapeOf(text).map((token) => (token.startsWith("'") ? "'x'" : token));
        expect(shape).toEqual(PLAIN);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("parseTableName", () => {
  it("puts a bare name into the default schema", () => {
    expect(parseTableName("events", "app")).toEqual({ schema: "app", table: "events" });
  });

  it("reads a schema of its own, quoted or not", () => {
    const expected = { schema: "log", table: "events" };
    expect(parseTableName("log.events", "app")).toEqual(expected);
    expect(parseTableName('"log"."events"', "app")).toEqual(expected);
  });

  it.each(["a.b.c", "", ".", "a.", ".b", 'a."b', 'a"."b'])("refuses %j", (text) => {
    expect(() => parseTableName(text, "app")).toThrow(ConfigError);
  });

  it("gives back what was quoted", () => {
    fc.assert(
      fc.property(usable, usable, (schema, table) => {
        expect(parseTableName(quoteTable({ schema, table }), "x")).toEqual({ schema, table });
      }),
    );
  });
});

describe("derivedName", () => {
  it("is the plain concatenation while it fits", () => {
    expect(derivedName("idx_", "my-events", "_stream")).toBe("idx_my_events_stream");
  });

  it("is a usable name for every table, and differs where tables differ in their tail", () => {
    fc.assert(
      fc.property(usable, (name) => {
        expect(() => quoteIdentifier(derivedName("idx_", name, "_correlation"))).not.toThrow();
      }),
    );
    const long = "t".repeat(62);
    const names = ["a", "b", "c"].map((tail) => derivedName("idx_", long + tail, "_stream"));
    expect(new Set(names).size).toBe(3);
  });
});

describe("splice", () => {
  it("takes a name literally, also one that looks like a pattern", () => {
    expect(splice("FROM {a} AND {a}", { a: '"$&x$1"' })).toBe('FROM "$&x$1" AND "$&x$1"');
  });

  it("refuses a word nobody defined", () => {
    expect(() => splice("FROM {nothing}", {})).toThrow("nothing");
  });
});

describe("fnv1a", () => {
  it.each([
    ["", 0x811c9dc5],
    ["a", 0xe40c292c],
    ["foobar", 0xbf9cf968],
  ])("of %j is the published value", (text, hash) => {
    expect(fnv1a(text)).toBe(hash);
  });
});

describe("mixedHash", () => {
  it("spreads neighbouring ids evenly over partitions", () => {
    const counts = [0, 0, 0, 0];
    for (let id = 0; id < 4_000; id += 1) counts[mixedHash(`order-${id}`) % 4]! += 1;
    for (const count of counts) expect(Math.abs(count - 1_000)).toBeLessThan(150);
  });
});
