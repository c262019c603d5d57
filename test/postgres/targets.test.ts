import { expect, it } from "vitest";
import { PINNED_VERSIONS } from "../../src/embedded/npm-install.ts";
import { targetsOf } from "./targets.ts";

it("are all that there are packages of, unless some are named", () => {
  expect(targetsOf([]).map(({ name }) => name)).toEqual(["14", "16", "17"]);
  expect(targetsOf(["17", "14"]).map(({ name }) => name)).toEqual(["17", "14"]);
});

it("are the versions that the launcher would fetch", () => {
  for (const { name, brought } of targetsOf([])) {
    expect([name, brought?.version]).toEqual([name, PINNED_VERSIONS[name]]);
  }
});

it("may be any installation by its absolute path", () => {
  expect(targetsOf(["/usr/lib/postgresql/15"])).toEqual([
    { name: "in /usr/lib/postgresql/15", installation: "/usr/lib/postgresql/15" },
  ]);
});

it("are refused when there is no package of one, which says what there is", () => {
  expect(() => targetsOf(["14", "13", "latest"])).toThrow(
    "no PostgreSQL 13, latest to test on; there are 14, 16, 17, and any other by the absolute path",
  );
});
