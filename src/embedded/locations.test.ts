import { describe, expect, it } from "vitest";
import { stateRootFor } from "./locations.ts";

const PERSON = { uid: 1000, env: {}, home: "/home/ada", temporary: "/tmp" };

describe("stateRootFor", () => {
  it("keeps an ordinary user's files in the cache of that user", () => {
    expect(stateRootFor(PERSON)).toBe("/home/ada/.cache/tidemill");
  });

  it("follows XDG_CACHE_HOME, but not a relative one", () => {
    const under = (path: string) => stateRootFor({ ...PERSON, env: { XDG_CACHE_HOME: path } });
    expect(under("/scratch")).toBe("/scratch/tidemill");
    expect(under("scratch")).toBe("/home/ada/.cache/tidemill");
  });

  it("stays out of root's home, which the runtime user cannot enter", () => {
    const env = { XDG_CACHE_HOME: "/closed/.cache" };
    expect(stateRootFor({ ...PERSON, uid: 0, env, home: "/closed" })).toBe("/var/tmp/tidemill");
  });

  it("uses the temporary directory for a user without a home", () => {
    expect(stateRootFor({ ...PERSON, home: "/" })).toBe("/tmp/tidemill-1000");
  });
});
