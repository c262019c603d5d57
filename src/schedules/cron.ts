import { Cron, CronPattern } from "croner";
import { InvalidInputError, messageOf } from "../base/errors.ts";
import { requireNumber, requireOneOf } from "../base/options.ts";

/** How late the only tick that "skip" fires may be: a scheduler has to look more often. */
export const SKIP_GRACE_MS = 60_000;
/** Dropped ticks are counted up to here; more are not enumerated. */
export const MISSED_COUNTED_MAX = 100;

/** Ticks of one call that "all" may be asked for. */
export const CATCH_UP_LIMIT = 10_000;
const EXPRESSION_LENGTH_MAX = 256;
/** More times of day than this are taken for a recurring schedule: each costs a calendar. */
const NAMED_TIMES_MAX = 24;
const FIELDS = { mode: "5-or-6-parts" } as const;
/** No date that comes at all stays away for longer than the calendar's 400 years from here. */
const SOME_DAY = new Date("2000-01-01T00:00:00Z");

/**
 * When a schedule fires: five fields (minute to weekday), six (with seconds in front) or a nickname
 * such as `@daily`, read in a time zone. Ticks are whole seconds. Day of month and weekday are
 * alternatives if both are given, as in every cron; `+MON` demands both.
 *
 * Where the clock is changed, it depends on how the time of day is written:
 * - **Named times** (numbers, lists and ranges, `30 2,14 * * *`) fire exactly once. A time that the
 *   day does not have fires when the clock jumps over it, together with whatever else fires then;
 *   a time that the day has twice fires the first time. A day that a zone left out altogether
 *   (Samoa, 30 December 2011) does not fire.
 * - **Recurring times** (`*` or a step in hours, minutes or seconds, every hour of the day, or more
 *   than 24 times a day) follow the clock on the wall: what it leaves out does not fire, what it
 *   shows twice fires twice. So `0 * * * *` fires every real hour of a day of 23 or 25.
 */
export interface CronTable {
  readonly expression: string;
  readonly timeZone: string;
  /** One calendar, or one per named time. Their union is the schedule; nobody starts them. */
  readonly calendars: readonly Cron[];
}

/** What happens to ticks that nobody was there to fire. See `dueTicks`. */
export interface CatchUpPolicy {
  readonly catchUp: "skip" | "once" | "all";
  readonly catchUpMax: number;
}

export interface DueTicks {
  /** What to fire now, oldest first. */
  readonly fire: readonly Date[];
  /** Due ticks that will never fire; a lower bound from `MISSED_COUNTED_MAX` on. */
  readonly missed: number;
  /** What to wait for next, or to catch up with at once if it is not after now. */
  readonly nextAt: Date | undefined;
}

/** Reads and checks an expression. Refuses also one that can never fire. */
export function parseCron(expression: string, timeZone: string): CronTable {
  if (expression.length > EXPRESSION_LENGTH_MAX) {
    throw new InvalidInputError(
      `a cron expression must not be longer than ${EXPRESSION_LENGTH_MAX} characters`,
    );
  }
  refuseUnknownZone(timeZone);
  const pattern = readPattern(expression, timeZone);
  const whole = new Cron(pattern.pattern, { ...FIELDS, timezone: timeZone });
  if (whole.nextRun(SOME_DAY) === null) {
    throw refusal(expression, "it never fires, because no year has such a day");
  }
  const named = namedTimes(pattern).map(
    (text) => new Cron(text, { ...FIELDS, timezone: timeZone }),
  );
  return { expression, timeZone, calendars: named.length > 0 ? named : [whole] };
}

function refuseUnknownZone(timeZone: string): void {
  try {
    // Newer versions of Node take offsets for zones; a schedule must not depend on the version.
    if (!/^[A-Za-z]/.test(timeZone)) throw new RangeError("not a name");
    Intl.DateTimeFormat("en-US", { timeZone });
  } catch (cause) {
    throw new InvalidInputError(
      `${JSON.stringify(timeZone)} is not a known time zone: ` +
        "use an IANA name like Europe/Berlin, or UTC",
      { cause },
    );
  }
}

function readPattern(expression: string, timeZone: string): CronPattern {
  const text = expression.trim();
  const count = text === "" ? 0 : text.split(/\s+/).length;
  if (!text.startsWith("@") && count !== 5 && count !== 6) {
    throw refusal(expression, `it has ${count} fields instead of 5, or 6 with seconds in front`);
  }
  try {
    return new CronPattern(text, timeZone, FIELDS);
  } catch (cause) {
    throw refusal(expression, text.startsWith("@") ? NICKNAMES : reasonOf(cause), cause);
  }
}

const NICKNAMES =
  "the nicknames are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly";

const LIMITS: Readonly<Record<string, string>> = {
  second: "seconds go from 0 to 59",
  minute: "minutes go from 0 to 59",
  hour: "hours go from 0 to 23",
  day: "days of the month go from 1 to 31",
  month: "months go from 1 to 12, or JAN to DEC",
  dayOfWeek: "weekdays go from 0 to 7, or SUN to SAT",
};

/** croner counts days, months and fields from zero in its messages, which misleads. */
function reasonOf(cause: unknown): string {
  const message = messageOf(cause).replace(/^CronPattern: (Syntax error, )?/, "");
  const limit = LIMITS[/^Invalid value for (\w+):/.exec(message)?.[1] ?? ""];
  const illegal = /^configuration entry \d+ \((.*)\) contains/s.exec(message)?.[1];
  return limit ?? (illegal === undefined ? message : `${JSON.stringify(illegal)} means nothing`);
}

function refusal(expression: string, reason: string, cause?: unknown): InvalidInputError {
  return new InvalidInputError(
    `${JSON.stringify(expression)} is not a usable cron expression: ${reason}`,
    { cause },
  );
}

/**
 * The expression once per time of day that it names, or nothing if its times recur. croner fires a
 * missing or doubled time exactly once only for expressions with a single time of day: of `2,14`
 * it would drop one tick in spring and repeat one in autumn.
 */
function namedTimes(pattern: CronPattern): string[] {
  const fields = pattern.pattern.trim().split(/\s+/);
  const [seconds = "", minutes = "", hours = "", ...days] =
    fields.length === 5 ? ["0", ...fields] : fields;
  const isNamed = [seconds, minutes, hours].every((field) => /^[\d,-]+$/.test(field));
  const chosen = (flags: readonly number[]): number[] =>
    [...flags.keys()].filter((value) => flags[value] === 1);
  const isHourly = chosen(pattern.hour).length === 24;
  if (!isNamed || isHourly) return [];
  const times = chosen(pattern.hour).flatMap((hour) =>
    chosen(pattern.minute).flatMap((minute) =>
      chosen(pattern.second).map((second) => `${second} ${minute} ${hour}`),
    ),
  );
  return times.length > NAMED_TIMES_MAX ? [] : times.map((time) => [time, ...days].join(" "));
}

/** The first tick strictly after; `undefined` when there is none before the year 3000. */
export function nextTick(cron: CronTable, after: Date): Date | undefined {
  for (const tick of ticksAfter(cron, after)) return tick;
  return undefined;
}

function* ticksAfter(cron: CronTable, after: Date): Generator<Date> {
  const heads = cron.calendars.map((calendar) => ({ calendar, at: calendar.nextRun(after) }));
  while (true) {
    const times = heads.flatMap(({ at }) => (at === null ? [] : [at.getTime()]));
    if (times.length === 0) return;
    const tick = new Date(Math.min(...times));
    yield tick;
    for (const head of heads) {
      if (head.at?.getTime() === tick.getTime()) head.at = head.calendar.nextRun(tick);
    }
  }
}

/** The last tick at or before `now`. */
function lastTick(cron: CronTable, now: Date): Date | undefined {
  // croner looks before the second of its reference, even if the tick is a millisecond older.
  const nextSecond = new Date((Math.floor(now.getTime() / 1_000) + 1) * 1_000);
  const times = cron.calendars
    .flatMap((calendar) => calendar.previousRuns(1, nextSecond))
    .map((tick) => tick.getTime());
  return times.length === 0 ? undefined : new Date(Math.max(...times));
}

/**
 * What is due at `now`, given the tick that was waited for.
 * - "skip" fires the latest due tick if it is no older than `SKIP_GRACE_MS`, and drops the others.
 * - "once" fires the latest due tick, however old, and drops the others.
 * - "all" fires every tick, `catchUpMax` per call: `nextAt` is then the first one that is left,
 *   still in the past, and nothing counts as missed.
 *
 * The work is bounded however long nobody looked: "skip" and "once" count at most
 * `MISSED_COUNTED_MAX` ticks and then jump to the last one.
 */
export function dueTicks(
  cron: CronTable,
  nextAt: Date,
  now: Date,
  policy: CatchUpPolicy,
): DueTicks {
  const catchUp = requireOneOf("catchUp", policy.catchUp, ["skip", "once", "all"]);
  const range = { min: 1, max: CATCH_UP_LIMIT, integer: true };
  const catchUpMax = requireNumber("catchUpMax", policy.catchUpMax, range);
  if (nextAt > now) return { fire: [], missed: 0, nextAt };
  if (catchUp === "all") {
    const { due, rest } = collectDue(cron, nextAt, now, catchUpMax);
    return { fire: due, missed: 0, nextAt: rest };
  }
  const { due, rest } = collectDue(cron, nextAt, now, MISSED_COUNTED_MAX);
  const isCounted = rest === undefined || rest > now;
  const latest = (isCounted ? due.at(-1) : lastTick(cron, now)) ?? nextAt;
  const isFresh = now.getTime() - latest.getTime() <= SKIP_GRACE_MS;
  const fire = catchUp === "once" || isFresh ? [latest] : [];
  return {
    fire,
    missed: isCounted ? due.length - fire.length : MISSED_COUNTED_MAX,
    nextAt: isCounted ? rest : nextTick(cron, now),
  };
}

/** At most `limit` ticks up to now, and the first that is not among them. */
function collectDue(
  cron: CronTable,
  nextAt: Date,
  now: Date,
  limit: number,
): { due: Date[]; rest: Date | undefined } {
  const due = [nextAt];
  for (const tick of ticksAfter(cron, nextAt)) {
    if (tick > now || due.length === limit) return { due, rest: tick };
    due.push(tick);
  }
  return { due, rest: undefined };
}
