import { describe, expect, it } from "vitest";
import {
  ALL_QUEUES,
  FORGET_MS,
  LINGER_MS,
  type Mark,
  nextMark,
  PATIENCE_MAX_MS,
  PATIENCE_MIN_MS,
  Presence,
} from "./presence.ts";

const quiet = { isOrdered: false, isRunning: false };
const asked: Mark = {
  state: "asked",
  orderedAtMs: 0,
  ranAtMs: -Infinity,
  patienceMs: PATIENCE_MIN_MS,
};

/** The states of a queue, once a second, of a worker that does nothing but tasks of so long. */
function statesOf(taskMs: number, seconds: number): Mark["state"][] {
  let mark: Mark | undefined;
  const states: Mark["state"][] = [];
  for (let nowMs = 0; nowMs < seconds * 1000; nowMs += 1000) {
    const isOrdered = nowMs % taskMs === 0;
    mark = nextMark(mark, { nowMs, isOrdered, isRunning: true });
    if (mark !== undefined) states.push(mark.state);
  }
  return states;
}

const turnsOf = (states: readonly Mark["state"][]): number =>
  states.filter((state, place) => place > 0 && state !== states[place - 1]).length;

describe("a queue of a tenant at a server", () => {
  it("is asked for from the first order on", () => {
    expect(nextMark(undefined, { nowMs: 5, ...quiet })).toBeUndefined();
    const mark = nextMark(undefined, { nowMs: 5, ...quiet, isOrdered: true });
    expect(mark).toMatchObject({ state: "asked", orderedAtMs: 5 });
  });

  it("stays so while its worker reconnects, and is idle when it does not", () => {
    expect(nextMark(asked, { nowMs: LINGER_MS - 1, ...quiet })?.state).toBe("asked");
    expect(nextMark(asked, { nowMs: LINGER_MS, ...quiet })?.state).toBe("idle");
    const ran = { ...asked, ranAtMs: 1_000 };
    expect(nextMark(ran, { nowMs: LINGER_MS, ...quiet })?.state).toBe("asked");
    expect(nextMark(ran, { nowMs: LINGER_MS + 1_000, ...quiet })?.state).toBe("idle");
  });

  it("stays so for its patience while workers are busy", () => {
    const busy = { ...quiet, isRunning: true };
    expect(nextMark(asked, { nowMs: PATIENCE_MIN_MS - 1, ...busy })?.state).toBe("asked");
    expect(nextMark(asked, { nowMs: PATIENCE_MIN_MS, ...busy })?.state).toBe("idle");
  });

  it("is idle until an order comes, and is forgotten when nothing does", () => {
    const idle: Mark = { ...asked, state: "idle" };
    const more = nextMark(idle, { nowMs: 9_000, ...quiet, isOrdered: true });
    expect(more).toMatchObject({ state: "asked", patienceMs: 2 * PATIENCE_MIN_MS });
    expect(nextMark(idle, { nowMs: FORGET_MS - 1, ...quiet })?.state).toBe("idle");
    expect(nextMark(idle, { nowMs: FORGET_MS, ...quiet })).toBeUndefined();
    const running = nextMark(idle, { nowMs: FORGET_MS, ...quiet, isRunning: true });
    expect(running).toMatchObject({ state: "idle", ranAtMs: FORGET_MS });
  });

  it("learns how long tasks take, and comes and goes a few times only", () => {
    expect(turnsOf(statesOf(4_000, 3_600))).toBe(0);
    const minutes = statesOf(60_000, 3_600);
    expect(turnsOf(minutes)).toBeLessThanOrEqual(2 * Math.ceil(Math.log2(60_000 / 5_000)));
    expect(minutes.slice(-600)).not.toContain("idle");
    // An hour is too long to keep others waiting.
    const hours = statesOf(3_600_000, 8 * 3_600);
    expect(turnsOf(hours)).toBe(2 * 8 - 1);
    expect(hours.filter((state) => state === "asked").length).toBeLessThan(
      (8 * PATIENCE_MAX_MS) / 1000,
    );
  });
});

describe("what a server tells of its tenants", () => {
  const none = { isOrdered: () => false, isRunning: () => false };

  it("is said once, and again when it changes", () => {
    const presence = new Presence();
    expect(presence.ordered("acme", ["mails", "bills"], 0)).toBe(true);
    const news = presence.news([]);
    expect(news).toEqual([{ tenant: "acme", queues: ["bills", "mails"], idle: [] }]);
    expect(presence.news([])).toEqual(news); // Nobody has heard it yet.
    presence.told(news);
    expect(presence.news([])).toEqual([]);
    expect(presence.ordered("acme", ["mails"], 10)).toBe(false);
    presence.review({ nowMs: LINGER_MS + 5, ...none });
    expect(presence.news([])).toEqual([
      { tenant: "acme", queues: ["bills", "mails"], idle: ["bills"] },
    ]);
  });

  it("is what is true in the end, when it changed while it was said", () => {
    const presence = new Presence();
    presence.ordered("acme", ["mails"], 0);
    const news = presence.news([]);
    presence.ordered("acme", ["bills"], 0);
    presence.told(news);
    const later = presence.news([]);
    expect(later).toEqual([{ tenant: "acme", queues: ["bills", "mails"], idle: [] }]);
    presence.told(later);
    expect(presence.news([])).toEqual([]);
  });

  it("ends with nothing for a tenant that went", () => {
    const presence = new Presence();
    presence.ordered("acme", ["mails"], 0);
    presence.told(presence.news([]));
    presence.review({ nowMs: LINGER_MS, ...none });
    presence.told(presence.news([]));
    presence.review({ nowMs: FORGET_MS, ...none });
    const news = presence.news([]);
    expect(news).toEqual([{ tenant: "acme", queues: [], idle: [] }]);
    presence.told(news);
    presence.review({ nowMs: 2 * FORGET_MS, ...none });
    expect(presence.news([])).toEqual([]);
  });

  it("names every queue for whoever orders all of them, also those that come later", () => {
    const presence = new Presence();
    presence.ordered("acme", [ALL_QUEUES], 0);
    presence.told(presence.news(["mails"]));
    presence.handlesMore();
    const news = presence.news(["mails", "bills"]);
    expect(news).toEqual([{ tenant: "acme", queues: ["bills", "mails"], idle: [] }]);
    presence.told(news);
    const isOrdered = (queue: string): boolean => queue === ALL_QUEUES;
    presence.review({ nowMs: FORGET_MS, isOrdered, isRunning: () => false });
    expect(presence.news(["mails", "bills"])).toEqual([]);
  });
});
