import { chmod, mkdir, mkdtemp, readlink, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { prepareInstallation } from "./native-tree.ts";

let directory: string;
let native: string;
let cache: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemill-native-"));
  await chmod(directory, 0o755);
  native = join(directory, "native");
  cache = join(directory, "cache");
  for (const part of ["bin", "lib", "share"]) await mkdir(join(native, part), { recursive: true });
  for (const name of ["postgres", "initdb"]) {
    await writeFile(join(native, "bin", name), "a program", { mode: 0o755 });
  }
  await writeFile(join(native, "lib", "libpq.so.5.18"), "a library");
  const links = [
    { source: "native/lib/libpq.so.5.18", target: "native/lib/libpq.so" },
    { source: "native/lib/libpq.so.5.18", target: "native/lib/libpq.so.5" },
  ];
  await writeFile(join(native, "pg-symlinks.json"), JSON.stringify(links));
});

afterEach(() => rm(directory, { recursive: true, force: true }));

describe("prepareInstallation", () => {
  it("makes the missing links in place, also when two do it at once", async () => {
    const both = [1, 2].map(() => prepareInstallation(native, undefined, cache));
    expect(await Promise.all(both)).toEqual([native, native]);
    expect(await readlink(join(native, "lib", "libpq.so.5"))).toBe("libpq.so.5.18");
  });

  it("copies what the runtime user cannot read, once, and opens it to all", async () => {
    const stranger = { name: "stranger", uid: 54_321, gid: 54_321 };
    await chmod(native, 0o700);
    await chmod(join(native, "bin", "postgres"), 0o700);

    const copies = await Promise.all(
      [1, 2].map(() => prepareInstallation(native, stranger, cache)),
    );
    expect(copies[0]).toBe(copies[1]);
    expect(copies[0]?.startsWith(cache)).toBe(true);
    const copy = copies[0] ?? "";
    expect((await stat(copy)).mode & 0o777).toBe(0o755);
    expect((await stat(join(copy, "bin", "postgres"))).mode & 0o777).toBe(0o755);
    expect(await readlink(join(copy, "lib", "libpq.so"))).toBe("libpq.so.5.18");
  });

  it("copies again when the installation was replaced", async () => {
    const stranger = { name: "stranger", uid: 54_321, gid: 54_321 };
    await chmod(native, 0o700);
    const first = await prepareInstallation(native, stranger, cache);
    await writeFile(join(native, "bin", "postgres"), "a newer program");
    expect(await prepareInstallation(native, stranger, cache)).not.toBe(first);
  });
});
