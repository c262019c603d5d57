import type { Clock } from "../base/clock.ts";
import { type Amount, NOTHING, type Quota, QuotaError } from "./quota.ts";

/** What a server was given, and how many servers share the rate. */
export interface Grant extends Amount {
  readonly servers: number;
  /** Nothing may be taken from it later. */
  readonly untilMs: number;
}

/** What others count as used, because this server may still store it or has it under way. */
export interface Held extends Amount {
  /** Of the grant that it belongs to. */
  readonly number: number;
}

/** More than this is no limit; a few of them still fit into a number of the database. */
const COUNT_MAX = Number.MAX_SAFE_INTEGER / 4;

/**
 * What one server may still store for one tenant. A grant is taken from piece by piece; what was
 * taken is under way until it is settled, which a later grant counts as used.
 */
export class QuotaBook {
  readonly #clock: Clock;
  #quota: Quota;
  #grant: Grant = { ...NOTHING, servers: 1, untilMs: 0 };
  #grants = 0;
  /** Changes of the quota, and how many there were when the last grant was asked for. */
  #changes = 0;
  #askedAfter = 0;
  #held: Amount = NOTHING;
  #takenAtMs = 0;
  #inFlight: Amount = NOTHING;
  #tokens: number;
  #filledAtMs: number;

  constructor(quota: Quota, clock: Clock) {
    this.#quota = quota;
    this.#clock = clock;
    this.#tokens = quota.rate?.count ?? 0;
    this.#filledAtMs = clock.now();
  }

  get quota(): Quota {
    return this.#quota;
  }

  /** What was granted under another quota is worth nothing. */
  change(quota: Quota): void {
    if (JSON.stringify(quota) === JSON.stringify(this.#quota)) return;
    const isSameRate = JSON.stringify(quota.rate) === JSON.stringify(this.#quota.rate);
    this.#quota = quota;
    this.#changes += 1;
    this.#grant = { ...this.#grant, ...NOTHING };
    if (!isSameRate) this.#tokens = quota.rate?.count ?? 0;
  }

  /**
   * Undefined when there is not enough. Throws when the tenant creates too fast. What it returns is
   * to be called once, with whether it was stored.
   */
  take(amount: Amount): ((isStored: boolean) => void) | undefined {
    this.#requireRate();
    const { tasks, bytes, untilMs } = this.#grant;
    const isEnough = tasks >= amount.tasks && bytes >= amount.bytes;
    if (!isEnough || this.#clock.now() >= untilMs) return undefined;
    const [number, changes] = [this.#grants, this.#changes];
    this.#grant = { ...this.#grant, ...minus(this.#grant, amount) };
    this.#inFlight = plus(this.#inFlight, amount);
    this.#tokens -= amount.tasks;
    this.#takenAtMs = this.#clock.now();
    return (isStored) => {
      this.#inFlight = minus(this.#inFlight, amount);
      const isSame = number === this.#grants && changes === this.#changes;
      if (!isStored && isSame) this.#grant = { ...this.#grant, ...plus(this.#grant, amount) };
    };
  }

  /** From now on nothing is taken until there is a new grant. Returns what is under way. */
  beginRenewal(): Amount {
    this.#grant = { ...this.#grant, ...NOTHING };
    this.#grants += 1;
    this.#askedAfter = this.#changes;
    return this.#inFlight;
  }

  /** What others are to count from now on if it gets this. */
  heldWith(grant: Amount): Held {
    return { ...capped(plus(grant, this.#inFlight)), number: this.#grants };
  }

  /** Given under a quota that has changed meanwhile it is worth nothing, and is given back. */
  granted(grant: Grant, held: Held = this.heldWith(grant)): void {
    this.#grant = this.#askedAfter === this.#changes ? grant : { ...grant, ...NOTHING };
    this.#held = held;
    this.#takenAtMs = this.#clock.now(); // Whoever asked for it is about to take from it.
  }

  /**
   * What is to be counted instead of what is, because some of it was stored meanwhile; after
   * `idleMs` without a create, also because the rest is given back. Undefined when that is no
   * change.
   */
  shrink(idleMs: number): Held | undefined {
    const isIdle = this.#clock.now() - this.#takenAtMs >= idleMs;
    if (isIdle) this.#grant = { ...this.#grant, ...NOTHING };
    const held = this.heldWith(this.#grant);
    if (held.tasks === this.#held.tasks && held.bytes === this.#held.bytes) return undefined;
    this.#held = held;
    return held;
  }

  /**
   * A create may be larger than what a period allows: it is let in, and paid for by the next ones.
   * So each server allows its part of the rate in the long run, and one create more at once.
   */
  #requireRate(): void {
    const { rate } = this.#quota;
    if (rate === null) return;
    const nowMs = this.#clock.now();
    const { servers } = this.#grant;
    const perMs = rate.count / (rate.seconds * 1000) / servers;
    const most = Math.max(1, rate.count / servers);
    this.#tokens = Math.min(most, this.#tokens + (nowMs - this.#filledAtMs) * perMs);
    this.#filledAtMs = nowMs;
    if (this.#tokens >= 1) return;
    const waitMs = Math.ceil((1 - this.#tokens) / perMs);
    throw new QuotaError(
      `this tenant may create ${rate.count} tasks in ${rate.seconds} s; come back later`,
      waitMs,
    );
  }
}

const capped = ({ tasks, bytes }: Amount): Amount => ({
  tasks: Math.min(COUNT_MAX, tasks),
  bytes: Math.min(COUNT_MAX, bytes),
});

const plus = (a: Amount, b: Amount): Amount => ({
  tasks: a.tasks + b.tasks,
  bytes: a.bytes + b.bytes,
});

const minus = (a: Amount, b: Amount): Amount => ({
  tasks: a.tasks - b.tasks,
  bytes: a.bytes - b.bytes,
});
