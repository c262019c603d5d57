import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { FAULTS } from "../chaos/faults/index.ts";
import { applyEdits } from "./edits.ts";
import { MUTANTS } from "./list.ts";

const pathOf = (file: string): string => fileURLToPath(new URL(`../${file}`, import.meta.url));

describe("the list of mutants", () => {
  it.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))(
    "%s changes the source as it is now",
    (_, { edits }) => {
      const read = (file: string): string => readFileSync(pathOf(file), "utf8");
      const texts = applyEdits(edits, read);
      expect(texts.size).toBeGreaterThan(0);
      for (const [file, text] of texts) expect(text).not.toBe(read(file));
    },
  );

  it("names each mutant once", () => {
    const names = MUTANTS.map(({ name }) => name);
    expect(names).toEqual([...new Set(names)]);
  });

  it("names faults and test files that exist", () => {
    const kinds = FAULTS.map(({ kind }) => kind);
    for (const catcher of MUTANTS.flatMap(({ catchers }) => catchers)) {
      if (catcher.kind === "chaos")
        expect(kinds).toEqual(expect.arrayContaining([...catcher.faults]));
      else readFileSync(pathOf(catcher.file));
    }
  });
});
