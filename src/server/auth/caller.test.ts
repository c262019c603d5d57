import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ForbiddenError } from "../../base/errors.ts";
import {
  ACTS,
  type Act,
  type Caller,
  isName,
  may,
  mayOnSome,
  requireMay,
  SCOPES,
  type Scope,
  WORKER_SCOPES,
} from "./caller.ts";

function caller(scopes: Iterable<Scope>, queues: Caller["queues"] = "all"): Caller {
  return {
    tenant: "acme",
    scopes: new Set(scopes),
    queues,
    subject: "test",
    expiresAt: "never",
    tokenId: "static:1",
  };
}

const someScopes = fc.uniqueArray(fc.constantFrom(...SCOPES));
const anAct = fc.constantFrom(...ACTS);
const aQueue = fc.constantFrom("mails", "bills", "prints", "constructor", "");
const someQueues = fc.oneof(
  fc.constant("all" as const),
  fc.uniqueArray(aQueue).map((queues) => new Set(queues)),
);

/** Written down a second time, and the other way round: what each scope is for. */
const PURPOSE: Readonly<Record<Scope, RegExp>> = {
  admin: /./,
  producer: /^(task\.(create|read|cancel|retry)|queue\.read|(dead|schedule|webhook)\..*)$/,
  read: /\.read$/,
  worker: /^(task\.(read|claim|renew|finish|nack|abandon)|queue\.(read|subscribe))$/,
  "worker:claim": /^task\.(read|claim)$/,
  "worker:renew": /^task\.(read|renew)$/,
  "worker:finish": /^task\.(read|finish)$/,
  "worker:nack": /^task\.(read|nack)$/,
  "worker:abandon": /^task\.(read|abandon)$/,
  "worker:subscribe": /^(task\.read|queue\.subscribe)$/,
};

describe("may", () => {
  it("never grants what no scope is for, or another queue", () => {
    fc.assert(
      fc.property(
        someScopes,
        someQueues,
        anAct,
        fc.option(aQueue),
        (scopes, queues, act, queue) => {
          const who = caller(scopes, queues);
          const given = queue ?? undefined;
          const isMeant = scopes.some(
            (scope) => PURPOSE[scope].test(act) && (scope !== "read" || !act.startsWith("cluster")),
          );
          const isReached = queues === "all" || (given !== undefined && queues.has(given));
          expect(may(who, act, given)).toBe(isMeant && isReached);
          if (may(who, act, given)) expect(mayOnSome(who, act)).toBe(true);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it("grants with more scopes what each of them grants, and nothing else", () => {
    fc.assert(
      fc.property(someScopes, someScopes, anAct, (some, others, act) => {
        const together = may(caller([...some, ...others]), act);
        expect(together).toBe(may(caller(some), act) || may(caller(others), act));
      }),
    );
  });

  it("grants nothing to a caller without scopes, or without queues", () => {
    for (const act of ACTS) {
      expect(may(caller([]), act, "mails")).toBe(false);
      expect(may(caller(SCOPES, new Set()), act, "mails")).toBe(false);
      expect(mayOnSome(caller(SCOPES, new Set()), act)).toBe(false);
    }
  });

  it("lets only an administrator touch the cluster and the settings of queues", () => {
    const others = SCOPES.filter((scope) => scope !== "admin");
    for (const act of ["cluster.read", "cluster.change", "queue.change"] as Act[]) {
      expect(may(caller(others), act)).toBe(false);
      expect(may(caller(["admin"]), act)).toBe(true);
    }
  });

  it("splits worker into parts that are the whole together", () => {
    for (const act of ACTS.filter((one) => one !== "queue.read")) {
      expect(may(caller(WORKER_SCOPES), act)).toBe(may(caller(["worker"]), act));
    }
  });
});

describe("requireMay", () => {
  it("agrees with may, and names what is missing", () => {
    fc.assert(
      fc.property(someScopes, someQueues, anAct, aQueue, (scopes, queues, act, queue) => {
        const who = caller(scopes, queues);
        const check = (): void => requireMay(who, act, queue);
        if (may(who, act, queue)) check();
        else expect(check).toThrow(ForbiddenError);
      }),
    );
    const worker = caller(["worker"], new Set(["mails"]));
    expect(() => requireMay(worker, "task.create", "mails")).toThrow(/lacks scope "producer"/);
    expect(() => requireMay(worker, "cluster.read")).toThrow(/lacks scope "admin"/);
    expect(() => requireMay(worker, "task.claim", "bills")).toThrow(/not for queue "bills"/);
    expect(() => requireMay(worker, "task.claim")).toThrow(/limited to some queues/);
  });
});

describe("a name", () => {
  it.each(["acme", "default", "a", "Müller & Söhne", "org_4|x", "名前", "x".repeat(200)])(
    "may be %j",
    (name) => expect(isName(name)).toBe(true),
  );

  it.each([
    "",
    " ",
    " acme",
    "acme\n",
    "ac\u0000me",
    "ac\u001bme",
    "ac\u202eme",
    "ac\u2028me",
    "\ud800",
    "x".repeat(201),
    "ü".repeat(101),
    7,
    null,
    ["acme"],
  ])("cannot be %j", (name) => expect(isName(name)).toBe(false));
});
