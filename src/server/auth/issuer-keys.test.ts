import { describe, expect, it } from "vitest";
import { ecKey, FakeJwks, rsaKey, type TestKey, toJwk } from "../../../test/support/issuer.ts";
import { ManualClock, settle } from "../../../test/support/manual-clock.ts";
import { UnauthenticatedError, UnavailableError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { type FetchJson, IssuerKeys } from "./issuer-keys.ts";

const first = ecKey("first");
const second = ecKey("second");

interface Scene {
  readonly clock: ManualClock;
  readonly jwks: FakeJwks;
  readonly keys: IssuerKeys;
  readonly warnings: object[];
}

function scene(published: readonly TestKey[], fetchJson?: FetchJson): Scene {
  const clock = new ManualClock();
  const jwks = new FakeJwks(published.map((key) => toJwk(key)));
  const warnings: object[] = [];
  const keys = new IssuerKeys({
    issuer: "https://login.example",
    jwksUrl: "https://login.example/keys",
    algorithms: ["ES256", "RS256"],
    staleMsMax: 3_600_000,
    fetchJson: fetchJson ?? jwks.fetchJson,
    clock,
    logger: { ...silentLogger, warn: (fields) => warnings.push(fields) },
  });
  return { clock, jwks, keys, warnings };
}

const MINUTE = 60_000;

describe("keys of an issuer", () => {
  it("are fetched once for callers that come at the same time", async () => {
    const { keys, jwks } = scene([first]);
    const found = await Promise.all(Array.from({ length: 50 }, () => keys.find("first", "ES256")));
    expect(new Set(found.map((key) => key.export({ format: "jwk" })["x"])).size).toBe(1);
    expect(jwks.fetches).toBe(1);
  });

  it("are asked of nobody for a flood of invented ids, but once in 30 seconds", async () => {
    const { keys, jwks, clock } = scene([first]);
    for (let second = 0; second < 90; second += 1) {
      const flood = Array.from({ length: 20 }, (_, n) => keys.find(`${second}-${n}`, "ES256"));
      const refused = await Promise.allSettled(flood);
      for (const one of refused) expect(one.status).toBe("rejected");
      await keys.find("first", "ES256");
      clock.advance(1_000);
    }
    expect(jwks.fetches).toBe(3);
  });

  it("that are not there are not asked for again within a minute", async () => {
    const { keys, jwks, clock } = scene([first]);
    await expect(keys.find("second", "ES256")).rejects.toThrow(UnauthenticatedError);
    clock.advance(30_000);
    await expect(keys.find("second", "ES256")).rejects.toThrow(UnauthenticatedError);
    expect(jwks.fetches).toBe(1);
    clock.advance(30_000);
    await expect(keys.find("second", "ES256")).rejects.toThrow(UnauthenticatedError);
    expect(jwks.fetches).toBe(2);
  });

  it("change: a new one is found as soon as it is used, an old one goes", async () => {
    const { keys, jwks, clock } = scene([first]);
    await keys.find("first", "ES256");
    jwks.publish([toJwk(first), toJwk(second)]);
    clock.advance(30_000);
    await keys.find("second", "ES256");
    expect(jwks.fetches).toBe(2);
    jwks.publish([toJwk(second)]);
    clock.advance(10 * MINUTE);
    await keys.find("first", "ES256"); // Served from what is known, while it is fetched again.
    await settle();
    await expect(keys.find("first", "ES256")).rejects.toThrow(UnauthenticatedError);
    expect(jwks.fetches).toBe(3);
  });

  it("change: one that is used too early is found 30 seconds after the last look", async () => {
    const { keys, jwks, clock } = scene([first]);
    await keys.find("first", "ES256");
    jwks.publish([toJwk(first), toJwk(second)]);
    clock.advance(29_000);
    await expect(keys.find("second", "ES256")).rejects.toThrow(UnauthenticatedError);
    clock.advance(1_000);
    await keys.find("second", "ES256");
    expect(jwks.fetches).toBe(2);
  });

  it("serve for an hour when the issuer is down, and no longer", async () => {
    const { keys, jwks, clock, warnings } = scene([first]);
    await keys.find("first", "ES256");
    jwks.failure = new Error("connect ECONNREFUSED");
    for (let minute = 1; minute < 60; minute += 1) {
      clock.advance(MINUTE);
      await keys.find("first", "ES256");
    }
    clock.advance(MINUTE);
    await expect(keys.find("first", "ES256")).rejects.toThrow(UnavailableError);
    expect(warnings.at(-1)).toEqual({
      issuer: "https://login.example",
      error: "connect ECONNREFUSED",
      keys: 1,
    });
    jwks.failure = undefined;
    clock.advance(30_000);
    await keys.find("first", "ES256");
  });

  it("that could not be fetched are tried again after 30 seconds, not at once", async () => {
    const { keys, jwks, clock } = scene([first]);
    jwks.failure = new Error("down");
    for (let calls = 0; calls < 10; calls += 1) {
      await expect(keys.find("first", "ES256")).rejects.toThrow(/cannot be checked now/);
    }
    expect(jwks.fetches).toBe(1);
    jwks.failure = undefined;
    clock.advance(30_000);
    await keys.find("first", "ES256");
    expect(jwks.fetches).toBe(2);
  });

  it.each([
    ["is too large", JSON.stringify({ keys: [toJwk(first)], more: "x".repeat(65_536) })],
    ["is not JSON", "<html>"],
    ["is another document", '{"error":"none"}'],
    ["has too many keys", JSON.stringify({ keys: Array.from({ length: 101 }, () => ({})) })],
  ])("stay as they are when the answer %s", async (_, body) => {
    const { keys, jwks, clock, warnings } = scene([first]);
    await keys.find("first", "ES256");
    jwks.body = body;
    clock.advance(11 * MINUTE);
    await keys.find("first", "ES256");
    await settle();
    await keys.find("first", "ES256");
    expect([jwks.fetches, warnings.length]).toEqual([2, 1]);
  });

  it("are not waited for longer than five seconds", async () => {
    let aborted = 0;
    const { keys, clock } = scene([], (_, { signal }) => {
      signal.addEventListener("abort", () => (aborted += 1));
      return new Promise(() => {});
    });
    const looking = expect(keys.find("first", "ES256")).rejects.toThrow(UnavailableError);
    await settle();
    clock.advance(5_000);
    await looking;
    expect([aborted, clock.pending]).toEqual([1, 0]);
  });

  it("of one type are not used for the algorithm of another", async () => {
    const { keys, jwks, clock } = scene([first, rsaKey("rsa")]);
    await expect(keys.find("first", "RS256")).rejects.toThrow(UnauthenticatedError);
    await expect(keys.find("rsa", "ES256")).rejects.toThrow(UnauthenticatedError);
    clock.advance(MINUTE);
    await expect(keys.find("rsa", "ES256")).rejects.toThrow(UnauthenticatedError);
    expect(jwks.fetches).toBe(1);
  });
});
