import { describe, expect, it } from "vitest";
import { ManualClock, settle } from "../../../test/support/manual-clock.ts";
import { UnauthenticatedError, UnavailableError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { Secret } from "../../base/secret.ts";
import type { Caller } from "./caller.ts";
import { msUntilLook, StreamAuth } from "./stream-auth.ts";

const START = 1_800_000_000_000;
const CALLER: Caller = {
  tenant: "acme",
  scopes: new Set(["worker"]),
  queues: "all",
  subject: "robot",
  expiresAt: "never",
  tokenId: "key:1",
};

/** A stream that began just now, and what its authenticator says of it from then on. */
function stream(expiresAt: Caller["expiresAt"]) {
  const clock = new ManualClock();
  const abort = new AbortController();
  const caller = { ...CALLER, expiresAt };
  const now = { answer: (): Caller => caller, offsetMs: 0, asked: 0 };
  const lines: object[] = [];
  const auth = new StreamAuth(new Secret("canary"), caller, {
    authenticator: {
      authenticate: (bearer) => {
        now.asked += 1;
        expect(bearer).toBe("canary");
        return Promise.resolve().then(() => now.answer());
      },
    },
    clock,
    wallClock: () => START + now.offsetMs + clock.now(),
    logger: { ...silentLogger, warn: (fields) => lines.push(fields) },
  });
  let ended: UnauthenticatedError | undefined | "open" = "open";
  const watching = auth.watch(abort.signal).then((refusal) => {
    ended = refusal;
  });
  const pass = async (ms: number): Promise<typeof ended> => {
    await settle();
    clock.advance(ms);
    await settle();
    return ended;
  };
  return { clock, now, abort, watching, pass, lines, ended: () => ended };
}

const inSeconds = (seconds: number): Date => new Date(START + seconds * 1000);

describe("the token of a stream", () => {
  it("ends it at the moment of its expiry", async () => {
    const { pass, clock, watching } = stream(inSeconds(12));
    expect(await pass(5_000)).toBe("open");
    expect(await pass(5_000)).toBe("open");
    expect(await pass(1_999)).toBe("open");
    expect(await pass(1)).toMatchObject({ reason: "expired", message: "the token has expired" });
    await watching;
    expect(clock.pending).toBe(0);
  });

  it("ends it at the next look after it was revoked", async () => {
    const { pass, now } = stream("never");
    expect(await pass(4_000)).toBe("open");
    now.answer = () => {
      throw new UnauthenticatedError("revoked");
    };
    expect(await pass(999)).toBe("open");
    expect(await pass(1)).toMatchObject({ reason: "revoked" });
  });

  it("is asked about every five seconds, not all the time", async () => {
    const { pass, now, abort, watching, ended } = stream("never");
    for (let second = 0; second < 60; second += 1) await pass(1_000);
    expect(now.asked).toBe(13);
    abort.abort();
    await watching;
    expect(ended()).toBeUndefined();
  });

  it("lets it go on while it cannot be checked, but not beyond its expiry", async () => {
    const { pass, now, lines } = stream(inSeconds(30));
    now.answer = () => {
      throw new UnavailableError("the database is away");
    };
    for (let second = 0; second < 29; second += 1) expect(await pass(1_000)).toBe("open");
    expect(await pass(1_000)).toMatchObject({ reason: "expired" });
    expect(lines[0]).toEqual({ error: "the database is away", tenant: "acme", tokenId: "key:1" });
  });

  it("ends it within five seconds of a clock that was set forward", async () => {
    const { pass, now } = stream(inSeconds(3_600));
    expect(await pass(1_000)).toBe("open");
    now.offsetMs = 7_200_000;
    expect(await pass(4_000)).toMatchObject({ reason: "expired" });
  });

  it("ends it when it became that of another tenant", async () => {
    const { pass, now } = stream("never");
    now.answer = () => ({ ...CALLER, tenant: "globex" });
    expect(await pass(5_000)).toMatchObject({ reason: "claim" });
  });
});

describe("msUntilLook", () => {
  it("is the time to the expiry, at most the interval, never less than nothing", () => {
    expect(msUntilLook("never", START, 5_000)).toBe(5_000);
    expect(msUntilLook(inSeconds(60), START, 5_000)).toBe(5_000);
    expect(msUntilLook(inSeconds(2), START, 5_000)).toBe(2_000);
    expect(msUntilLook(inSeconds(0), START, 5_000)).toBe(0);
    expect(msUntilLook(inSeconds(-9), START, 5_000)).toBe(0);
  });
});
