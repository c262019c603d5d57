import { expect, it } from "vitest";
import { FILES, textOf } from "../support/tidy/repository.ts";

const namesIn = (files: readonly string[], pattern: RegExp): string[] =>
  files.flatMap((file) => Array.from(textOf(file).matchAll(pattern), ([, name = ""]) => name));

const committed = FILES.flatMap((file) => /^docs\/images\/(.+)\.png$/.exec(file)?.[1] ?? []);

it("pictures of the documents are those that browser tests take", () => {
  const suites = FILES.filter((file) => /^test\/browser\/.*\.ts$/.test(file));
  const taken = namesIn(suites, /"(dashboard-[a-z-]+)"/g);
  expect(taken.toSorted()).toEqual(committed.toSorted());
});

it("pictures are all shown by a document", () => {
  const documents = FILES.filter((file) => file.endsWith(".md"));
  const shown = new Set(namesIn(documents, /images\/([a-z-]+)\.png/g));
  expect(committed.filter((name) => !shown.has(name))).toEqual([]);
});
