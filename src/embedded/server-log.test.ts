import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LogFollower, lastLogLines, logPath } from "./server-log.ts";

let dataDir: string;
let heard: string[];
const listen = (line: string): void => {
  heard.push(line);
};

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tidemill-log-"));
  heard = [];
});

afterEach(() => rm(dataDir, { recursive: true, force: true }));

describe("LogFollower", () => {
  it("hands over whole lines, and the last one even if it has no end", async () => {
    await writeFile(logPath(dataDir), "one\ntwo\nthr");
    const follower = new LogFollower(logPath(dataDir), "start", listen);
    await appendFile(logPath(dataDir), "ee\nfour");
    follower.stop();
    expect(heard).toEqual(["one", "two", "three", "four"]);
  });

  it("begins at the end for an adopted server, whose past is not news", async () => {
    await writeFile(logPath(dataDir), "old\n");
    const follower = new LogFollower(logPath(dataDir), "end", listen);
    await appendFile(logPath(dataDir), "new\n");
    follower.stop();
    expect(heard).toEqual(["new"]);
  });

  it("begins again when a new server started the file anew", async () => {
    await writeFile(logPath(dataDir), "a long line of the first server\n");
    const follower = new LogFollower(logPath(dataDir), "end", listen);
    await writeFile(logPath(dataDir), "second\n");
    follower.stop();
    expect(heard).toEqual(["second"]);
  });

  it("is content without a file", () => {
    new LogFollower(logPath(dataDir), "start", listen).stop();
    expect(heard).toEqual([]);
  });
});

describe("lastLogLines", () => {
  it("gives the end of the log, or nothing", async () => {
    expect(await lastLogLines(dataDir)).toBe("");
    await writeFile(logPath(dataDir), "one\ntwo\nthree\n");
    expect(await lastLogLines(dataDir, 2)).toBe("two\nthree");
  });
});
