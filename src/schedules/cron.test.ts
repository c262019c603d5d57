import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidInputError } from "../base/errors.ts";
import {
  type CatchUpPolicy,
  type CronTable,
  dueTicks,
  MISSED_COUNTED_MAX,
  nextTick,
  parseCron,
  SKIP_GRACE_MS,
} from "./cron.ts";

const HOUR_MS = 3_600_000;
const at = (text: string): Date => new Date(text);

/** The ticks after `from` up to and with `to`. */
function ticksBetween(cron: CronTable, from: Date, to: Date): Date[] {
  const ticks: Date[] = [];
  for (let tick = nextTick(cron, from); tick !== undefined && tick <= to; ) {
    ticks.push(tick);
    tick = nextTick(cron, tick);
  }
  return ticks;
}

/** As above, as texts without seconds. */
function listed(expression: string, timeZone: string, [from, to]: [string, string]): string[] {
  const ticks = ticksBetween(parseCron(expression, timeZone), at(from), at(to));
  return ticks.map((tick) => tick.toISOString().replace(/:00\.000Z$/, "Z"));
}

const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "America/Havana",
  "Asia/Kathmandu",
  "Africa/Cairo",
];
const zones = fc.constantFrom(...ZONES);

function fields(min: number, max: number): fc.Arbitrary<string> {
  const value = fc.integer({ min, max });
  const several = fc.uniqueArray(value, { minLength: 2, maxLength: 4 });
  return fc.oneof(
    { arbitrary: fc.constant("*"), weight: 2 },
    { arbitrary: value.map(String), weight: 3 },
    fc.integer({ min: 1, max: Math.min(max, 30) }).map((step) => `*/${step}`),
    several.map((list) => list.join(",")),
    fc.tuple(value, value).map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`),
  );
}

const expressions = fc
  .tuple(
    fc.oneof(fc.constant(""), fields(0, 59)),
    fields(0, 59),
    fields(0, 23),
    fc.oneof(fc.constant("*"), fields(1, 28), fc.constantFrom("L", "LW", "15W", "31", "29")),
    fc.oneof(fc.constant("*"), fields(1, 12)),
    fc.oneof(fc.constant("*"), fields(0, 6), fc.constantFrom("MON#2", "5L", "+1-5", "SUN,TUE")),
  )
  .map((parts) => parts.join(" ").trim());

/** A schedule that fires, and a moment of the years around the changes of the clock. */
const scenes = fc
  .record({
    expression: expressions,
    timeZone: zones,
    changeAt: fc.constantFrom(
      "2026-03-29T01:00:00Z",
      "2026-10-25T01:00:00Z",
      "2026-03-08T07:00:00Z",
      "2026-11-01T06:00:00Z",
      "2026-04-04T15:00:00Z",
      "2024-02-29T00:00:00Z",
    ),
    offsetMs: fc.integer({ min: -9 * HOUR_MS, max: 9 * HOUR_MS }),
  })
  .map(({ expression, timeZone, changeAt, offsetMs }) => {
    const moment = new Date(at(changeAt).getTime() + offsetMs);
    try {
      return { cron: parseCron(expression, timeZone), moment };
    } catch {
      // Such as 31 February: refused, as it should be.
      return { cron: parseCron("30 2 * * *", timeZone), moment };
    }
  });

describe("parseCron", () => {
  it.each([
    ["*/5 * * * *", "2026-01-01T00:05Z"],
    ["30 */5 * * * *", "2026-01-01T00:00:30.000Z"],
    ["@daily", "2026-01-02T00:00Z"],
    ["@Hourly", "2026-01-01T01:00Z"],
    ["  0  12 * * MON-FRI ", "2026-01-01T12:00Z"],
    ["0 0 29 2 *", "2028-02-29T00:00Z"],
    ["0 0 L * *", "2026-01-31T00:00Z"],
    ["0 9 * * 1#2", "2026-01-12T09:00Z"],
    ["0 0 13 * FRI", "2026-01-02T00:00Z"],
    ["0 0 13 * +FRI", "2026-02-13T00:00Z"],
  ])("reads %j", (expression, first) => {
    const found = nextTick(parseCron(expression, "UTC"), at("2026-01-01T00:00:00Z"));
    expect(found?.toISOString().replace(/:00\.000Z$/, "Z")).toBe(first);
  });

  it.each([
    ["", "it has 0 fields instead of 5, or 6 with seconds in front"],
    ["* * * *", "it has 4 fields"],
    ["* * * * * * *", "it has 7 fields"],
    ["2026-05-01T00:00:00", "it has 1 fields"],
    ["0:00 * * * *", '"0:00" means nothing'],
    ["60 * * * *", "minutes go from 0 to 59"],
    ["0 24 * * *", "hours go from 0 to 23"],
    ["0 0 32 * *", "days of the month go from 1 to 31"],
    ["0 0 1 13 *", "months go from 1 to 12"],
    ["0 0 * * 8", "weekdays go from 0 to 7"],
    ["0 0 * * * Europe", '"Europe" means nothing'],
    ["*/0 * * * *", "illegal stepping: 0"],
    ["10-5 * * * *", "From value is larger than to value"],
    ["@reboot", "the nicknames are @yearly"],
    ["@fortnightly", "the nicknames are @yearly"],
    ["0 0 30 2 *", "it never fires"],
    ["0 0 31 4,6,9,11 *", "it never fires"],
  ])("refuses %j and says why", (expression, reason) => {
    const parse = (): CronTable => parseCron(expression, "Europe/Berlin");
    expect(parse).toThrow(InvalidInputError);
    expect(parse).toThrow(`${JSON.stringify(expression)} is not a usable cron expression`);
    expect(parse).toThrow(reason);
  });

  it("refuses an expression of any length without quoting it", () => {
    expect(() => parseCron("1,".repeat(1_000_000), "UTC")).toThrow("longer than 256 characters");
  });

  it.each(["", "Mars/Olympus", "Berlin", "+02:00", "local"])("refuses the time zone %j", (zone) => {
    expect(() => parseCron("@daily", zone)).toThrow(InvalidInputError);
    expect(() => parseCron("@daily", zone)).toThrow("use an IANA name like Europe/Berlin");
  });
});

describe("nextTick", () => {
  it("is strictly later, to the millisecond", () => {
    const cron = parseCron("* * * * *", "UTC");
    const tick = at("2026-01-01T00:05:00Z");
    expect(nextTick(cron, at("2026-01-01T00:04:59.999Z"))).toEqual(tick);
    expect(nextTick(cron, tick)).toEqual(at("2026-01-01T00:06:00Z"));
    expect(nextTick(cron, at("2026-01-01T00:05:00.001Z"))).toEqual(at("2026-01-01T00:06:00Z"));
  });

  it("gives strictly increasing whole seconds, the same from wherever it is asked", () => {
    fc.assert(
      fc.property(scenes, fc.double({ min: 0, max: 1, noNaN: true }), ({ cron, moment }, part) => {
        let before = moment;
        for (let count = 0; count < 8; count += 1) {
          const tick = nextTick(cron, before);
          if (tick === undefined) throw new Error("a schedule ended");
          expect(tick.getTime()).toBeGreaterThan(before.getTime());
          expect(tick.getTime() % 1_000).toBe(0);
          const waitMs = tick.getTime() - before.getTime();
          const between = new Date(before.getTime() + Math.floor(part * (waitMs - 1)));
          expect(nextTick(cron, between)).toEqual(tick);
          before = tick;
        }
      }),
      { numRuns: 100 },
    );
  });
});

describe("when the clock is changed", () => {
  const berlin = "Europe/Berlin";
  const newYork = "America/New_York";
  const berlinSpring: [string, string] = ["2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"];
  const berlinAutumn: [string, string] = ["2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z"];
  // The two days alone, of 23 and of 25 hours.
  const spring: [string, string] = ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"];
  const autumn: [string, string] = ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"];

  it("a time that the day does not have fires once, when the clock jumps over it", () => {
    expect(listed("30 2 * * *", berlin, berlinSpring)).toEqual([
      "2026-03-28T01:30Z",
      "2026-03-29T01:00Z",
      "2026-03-30T00:30Z",
    ]);
    const span: [string, string] = ["2026-03-07T00:00:00Z", "2026-03-09T12:00:00Z"];
    expect(listed("30 2 * * *", newYork, span)).toEqual([
      "2026-03-07T07:30Z",
      "2026-03-08T07:00Z",
      "2026-03-09T06:30Z",
    ]);
  });

  it("a time that the day has twice fires once, the first time", () => {
    expect(listed("30 2 * * *", berlin, berlinAutumn)).toEqual([
      "2026-10-24T00:30Z",
      "2026-10-25T00:30Z",
      "2026-10-26T01:30Z",
    ]);
    const span: [string, string] = ["2026-10-31T00:00:00Z", "2026-11-02T12:00:00Z"];
    expect(listed("30 1 * * *", newYork, span)).toEqual([
      "2026-10-31T05:30Z",
      "2026-11-01T05:30Z",
      "2026-11-02T06:30Z",
    ]);
  });

  it("the same holds for every time of a list or a range", () => {
    expect(listed("30 2,14 * * *", berlin, spring)).toEqual([
      "2026-03-29T01:00Z",
      "2026-03-29T12:30Z",
    ]);
    expect(listed("30 2,14 * * *", berlin, autumn)).toEqual([
      "2026-10-25T00:30Z",
      "2026-10-25T13:30Z",
    ]);
    expect(listed("0 1-3 * * *", berlin, autumn)).toEqual([
      "2026-10-24T23:00Z",
      "2026-10-25T00:00Z",
      "2026-10-25T02:00Z",
    ]);
  });

  it("times that meet in one moment are one tick", () => {
    expect(listed("0,30 2 * * *", berlin, spring)).toEqual(["2026-03-29T01:00Z"]);
    expect(listed("0 2,3 * * *", berlin, spring)).toEqual(["2026-03-29T01:00Z"]);
  });

  it.each(["0 * * * *", "@hourly", "0 0-23 * * *", "0 */1 * * *"])(
    "%j fires every real hour",
    (expression) => {
      const changes: [string, string][] = [
        [berlin, "2026-03-28T00:00:00Z"],
        [berlin, "2026-10-24T00:00:00Z"],
        [newYork, "2026-03-07T00:00:00Z"],
        [newYork, "2026-10-31T00:00:00Z"],
      ];
      for (const [timeZone, start] of changes) {
        const cron = parseCron(expression, timeZone);
        const wanted = Array.from({ length: 72 }, (_, index) => {
          return new Date(at(start).getTime() + (index + 1) * HOUR_MS);
        });
        expect(ticksBetween(cron, at(start), wanted.at(-1)!)).toEqual(wanted);
      }
    },
  );

  it("a recurring time follows the clock on the wall", () => {
    expect(listed("*/30 2 * * *", berlin, spring)).toEqual([]);
    expect(listed("*/30 2 * * *", berlin, autumn)).toHaveLength(4);
  });

  it("a daily time fires on every day of the year, once", () => {
    const hours = fc.integer({ min: 0, max: 23 });
    const minutes = fc.integer({ min: 0, max: 59 });
    fc.assert(
      fc.property(zones, hours, minutes, (timeZone, hour, minute) => {
        const cron = parseCron(`${minute} ${hour} * * *`, timeZone);
        const ticks = ticksBetween(cron, at("2026-02-01T00:00:00Z"), at("2026-12-01T00:00:00Z"));
        const day = new Intl.DateTimeFormat("en-CA", { timeZone, dateStyle: "short" });
        const days = ticks.map((tick) => Date.parse(`${day.format(tick)}T00:00:00Z`));
        const first = days[0] ?? 0;
        expect(days).toEqual(days.map((_, index) => first + index * 24 * HOUR_MS));
        expect(ticks.length).toBeGreaterThanOrEqual(302);
      }),
      { numRuns: 15 },
    );
  });
});

describe("dueTicks", () => {
  const minutely = parseCron("* * * * *", "UTC");
  const due = (nextAt: string, now: string, policy: Partial<CatchUpPolicy>) =>
    dueTicks(minutely, at(nextAt), at(now), { catchUp: "once", catchUpMax: 10, ...policy });

  it("fires nothing before its time, and the tick itself on time", () => {
    const nextAt = "2026-01-01T00:05:00Z";
    for (const catchUp of ["skip", "once", "all"] as const) {
      expect(due(nextAt, "2026-01-01T00:04:59.999Z", { catchUp })).toEqual({
        fire: [],
        missed: 0,
        nextAt: at(nextAt),
      });
      expect(due(nextAt, nextAt, { catchUp })).toEqual({
        fire: [at(nextAt)],
        missed: 0,
        nextAt: at("2026-01-01T00:06:00Z"),
      });
    }
  });

  it("skips what is older than the grace", () => {
    const daily = parseCron("@daily", "UTC");
    const midnight = at("2026-01-02T00:00:00Z");
    const policy = { catchUp: "skip", catchUpMax: 1 } as const;
    const late = (ms: number) =>
      dueTicks(daily, midnight, new Date(midnight.getTime() + ms), policy);
    const nextAt = at("2026-01-03T00:00:00Z");
    expect(late(SKIP_GRACE_MS)).toEqual({ fire: [midnight], missed: 0, nextAt });
    expect(late(SKIP_GRACE_MS + 1)).toEqual({ fire: [], missed: 1, nextAt });
  });

  it("fires the latest tick once, however many were missed", () => {
    expect(due("2026-01-01T00:05:00Z", "2026-01-01T00:20:30Z", {})).toEqual({
      fire: [at("2026-01-01T00:20:00Z")],
      missed: 15,
      nextAt: at("2026-01-01T00:21:00Z"),
    });
  });

  it("catches up with everything, so many at a time", () => {
    const policy = { catchUp: "all", catchUpMax: 2 } as const;
    expect(due("2026-01-01T00:05:00Z", "2026-01-01T00:07:30Z", policy)).toEqual({
      fire: [at("2026-01-01T00:05:00Z"), at("2026-01-01T00:06:00Z")],
      missed: 0,
      nextAt: at("2026-01-01T00:07:00Z"),
    });
  });

  it("agrees with counting every tick, for any schedule, moment and policy", () => {
    const policies = fc.record({
      catchUp: fc.constantFrom("skip" as const, "once" as const, "all" as const),
      catchUpMax: fc.integer({ min: 1, max: 5 }),
    });
    // Some reach beyond the number that is counted.
    const edges = [-2, -1, 0, 1, 20].map((more) => MISSED_COUNTED_MAX + more);
    const counts = fc.oneof({ arbitrary: fc.nat(8), weight: 3 }, fc.constantFrom(...edges));
    const lateness = fc.constantFrom(0, 1, 999, 1_000, SKIP_GRACE_MS, HOUR_MS);
    const check = fc.property(
      fc.tuple(scenes, counts, lateness, policies),
      ([{ cron, moment }, count, lateMs, policy]) => {
        const all: Date[] = [];
        for (let tick = nextTick(cron, moment); tick !== undefined && all.length <= count; ) {
          all.push(tick);
          tick = nextTick(cron, tick);
        }
        const [first, last] = [all[0], all.at(-1)];
        if (first === undefined || last === undefined) throw new Error("a schedule ended");
        const now = new Date(last.getTime() + lateMs);
        all.push(...ticksBetween(cron, last, now));
        const latest = all.at(-1) ?? last;
        const found = dueTicks(cron, first, now, policy);
        const isFresh = now.getTime() - latest.getTime() <= SKIP_GRACE_MS;
        if (policy.catchUp === "all") {
          expect(found.fire).toEqual(all.slice(0, policy.catchUpMax));
          expect(found.missed).toBe(0);
          expect(found.nextAt).toEqual(all[policy.catchUpMax] ?? nextTick(cron, now));
          return;
        }
        expect(found.fire).toEqual(policy.catchUp === "once" || isFresh ? [latest] : []);
        const dropped = all.length - found.fire.length;
        expect(found.missed).toBe(all.length > MISSED_COUNTED_MAX ? MISSED_COUNTED_MAX : dropped);
        expect(found.nextAt).toEqual(nextTick(cron, now));
      },
    );
    fc.assert(check, { numRuns: 60 });
  });

  it("fires every tick exactly once over as many calls as it takes", () => {
    const cron = parseCron("*/7 * * * *", "Europe/Berlin");
    const now = at("2026-10-25T03:00:00Z");
    const fired: Date[] = [];
    let nextAt = nextTick(cron, at("2026-10-24T20:00:00Z"));
    while (nextAt !== undefined && nextAt <= now) {
      const found = dueTicks(cron, nextAt, now, { catchUp: "all", catchUpMax: 4 });
      fired.push(...found.fire);
      nextAt = found.nextAt;
    }
    expect(fired).toEqual(ticksBetween(cron, at("2026-10-24T20:00:00Z"), now));
  });

  it("does not enumerate the seconds of ten missed years", () => {
    const secondly = parseCron("* * * * * *", "Europe/Berlin");
    const nextAt = at("2016-01-01T00:00:00Z");
    const now = at("2026-01-01T00:00:00.500Z");
    const started = performance.now();
    for (const catchUp of ["skip", "once"] as const) {
      expect(dueTicks(secondly, nextAt, now, { catchUp, catchUpMax: 5 })).toEqual({
        fire: [at("2026-01-01T00:00:00Z")],
        missed: MISSED_COUNTED_MAX,
        nextAt: at("2026-01-01T00:00:01Z"),
      });
    }
    const all = dueTicks(secondly, nextAt, now, { catchUp: "all", catchUpMax: 5 });
    expect(all.fire).toHaveLength(5);
    expect(all.nextAt).toEqual(at("2016-01-01T00:00:05Z"));
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  it("refuses a catch-up that could never end, or has no end", () => {
    for (const catchUpMax of [0, -1, 1.5, Infinity]) {
      const policy = { catchUp: "all", catchUpMax } as const;
      const now = at("2026-01-01T00:00:00Z");
      expect(() => dueTicks(minutely, now, now, policy)).toThrow("catchUpMax must be");
    }
  });
});
