import { chmod, mkdir, mkdtemp, realpath, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeReachable, obstacleOnTheWay, spawnAs } from "./runtime-user.ts";

const STRANGER = { name: "stranger", uid: 54_321, gid: 54_321 };
let directory: string;

beforeEach(async () => {
  directory = await realpath(await mkdtemp(join(tmpdir(), "tidemill-user-")));
  await chmod(directory, 0o755);
});

afterEach(() => rm(directory, { recursive: true, force: true }));

describe("obstacleOnTheWay", () => {
  it("names the directory that shuts the user out", async () => {
    const closed = join(directory, "closed");
    await mkdir(join(closed, "inner"), { recursive: true });
    await chmod(closed, 0o700);
    expect(await obstacleOnTheWay(join(closed, "inner"), STRANGER)).toBe(closed);
  });

  it("judges a path that does not exist yet by what exists of it", async () => {
    expect(await obstacleOnTheWay(join(directory, "a", "b"), STRANGER)).toBeUndefined();
    await chmod(directory, 0o700);
    expect(await obstacleOnTheWay(join(directory, "a", "b"), STRANGER)).toBe(directory);
  });

  it("looks at the digit of the mode that applies to the user", async () => {
    const { uid, gid } = await stat(directory);
    await chmod(directory, 0o701);
    expect(await obstacleOnTheWay(directory, { name: "peer", uid: uid + 1, gid })).toBe(directory);
    expect(await obstacleOnTheWay(directory, { name: "owner", uid, gid })).toBeUndefined();
  });
});

describe("makeReachable", () => {
  it("opens the directories it made and leaves the others as they were", async () => {
    await chmod(directory, 0o711);
    const made = join(directory, "a", "b");
    await makeReachable(made);
    expect((await stat(directory)).mode & 0o777).toBe(0o711);
    expect((await stat(join(directory, "a"))).mode & 0o777).toBe(0o755);
    expect((await stat(made)).mode & 0o777).toBe(0o755);
  });
});

describe("spawnAs", () => {
  it("passes a user number above 2^31 as the signed number that spawn takes", () => {
    expect(spawnAs({ name: "nobody", uid: 4_294_967_294, gid: 4_294_967_294 })).toMatchObject({
      uid: -2,
      gid: -2,
    });
  });

  it("hands over neither PG variables nor the caller's locale", () => {
    const { env } = spawnAs(undefined);
    expect(env?.["LC_ALL"]).toBe("C");
    expect(Object.keys(env ?? {}).filter((name) => name.startsWith("PG"))).toEqual([]);
  });
});
