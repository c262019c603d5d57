import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { lockPath, withStartLock } from "./start-lock.ts";

let directory: string;
let dataDir: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tidemill-lock-"));
  dataDir = join(directory, "data");
});

afterEach(() => rm(directory, { recursive: true, force: true }));

describe("withStartLock", () => {
  it("lets one at a time in", async () => {
    let inside = 0;
    let most = 0;
    const visit = () =>
      withStartLock(dataDir, async () => {
        inside += 1;
        most = Math.max(most, inside);
        await readdir(directory);
        inside -= 1;
      });
    await Promise.all([visit(), visit(), visit()]);
    expect(most).toBe(1);
  });

  it("leaves nothing behind, even when the work fails", async () => {
    const failing = withStartLock(dataDir, () => Promise.reject(new Error("no luck")));
    await expect(failing).rejects.toThrow("no luck");
    expect(await readdir(directory)).toEqual([]);
  });

  it("takes over the lock of a process that died", async () => {
    const dead = { pid: 2_147_483_647, startedAt: "1" };
    await writeFile(lockPath(dataDir), JSON.stringify(dead));
    expect(await withStartLock(dataDir, () => Promise.resolve("in"))).toBe("in");
  });

  it("takes over from an earlier process with our pid, as after a container restart", async () => {
    const earlier = { pid: process.pid, startedAt: "long ago" };
    await writeFile(lockPath(dataDir), JSON.stringify(earlier));
    expect(await withStartLock(dataDir, () => Promise.resolve("in"))).toBe("in");
  });

  it("says which file it cannot write", async () => {
    const impossible = join(directory, "missing", "data");
    const attempt = withStartLock(impossible, () => Promise.resolve());
    await expect(attempt).rejects.toThrow(ConfigError);
    await expect(attempt).rejects.toThrow(lockPath(impossible));
  });
});
