import type { Clock } from "../base/clock.ts";
import type { Executor } from "./executor.ts";
import {
  type ClaimFacts,
  KeyClaimer,
  type KeyClaimerParts,
  type KeySpace,
  type TakeRows,
} from "./key-claimer.ts";
import type { Limits } from "./limits.ts";
import type { TaskSession } from "./session.ts";
import { readOwnedBuckets } from "./sql/keys.ts";
import { readStoppedKeys } from "./sql/queue-admin.ts";
import { bucketOfLane, keyId } from "./task.ts";

/** While there is work, looking at all buckets again is worth this much. */
const LOOK_MS = 100;

/** How much of a key space a worker wants: keyed tasks wait for each other in memory. */
export type WantKeyed = (space: KeyClaimer) => number;

/** All key spaces of which this worker handles queues, and which buckets of them it owns. */
export class KeySpaces {
  readonly #session: TaskSession;
  readonly #executor: Executor;
  readonly #facts: ClaimFacts;
  readonly #clock: Clock;
  #spaces = new Map<number, KeyClaimer>();
  /** Of which something was asked for in the last round. */
  readonly #wanted = new Set<KeyClaimer>();
  #isOwnershipNews = true;
  #lookedAtMs = -Infinity;

  constructor(session: TaskSession, executor: Executor, facts: ClaimFacts, clock: Clock) {
    this.#session = session;
    this.#executor = executor;
    this.#facts = facts;
    this.#clock = clock;
  }

  /** Set once the queues are registered. What is known of a space that is as before stays. */
  use(spaces: readonly KeySpace[], parts: KeyClaimerParts): void {
    const claimerOf = (space: KeySpace): KeyClaimer => {
      const known = this.#spaces.get(space.id);
      if (known !== undefined && isSame(known.space, space)) return known;
      return new KeyClaimer(this.#session, this.#executor, space, parts);
    };
    this.#spaces = new Map(spaces.map((space) => [space.id, claimerOf(space)]));
    this.#isOwnershipNews = true;
  }

  useLimits(limits: ReadonlyMap<string, Limits>): void {
    for (const space of this.#spaces.values()) space.useLimits(limits);
  }

  /** The space of a lane of keyed tasks. */
  of(lane: number): KeyClaimer | undefined {
    return this.#spaces.get(bucketOfLane(lane).keySpaceId);
  }

  /** Buckets may have moved, keys may flow again. */
  ownersChanged(): void {
    this.#isOwnershipNews = true;
    for (const space of this.#spaces.values()) space.changed();
  }

  /** The server may have crashed. */
  forget(): void {
    for (const space of this.#spaces.values()) space.forget();
  }

  /** Milliseconds until something is due that nobody announces. What is not wanted is not due. */
  get restMs(): number {
    return Math.min(...[...this.#wanted].map((space) => space.restMs));
  }

  /** Asks what is ours when that may have changed, and gives back what is not. */
  async readOwnership(): Promise<void> {
    if (!this.#isOwnershipNews) return;
    this.#isOwnershipNews = false;
    try {
      await this.#readOwnership();
    } catch (error) {
      this.#isOwnershipNews = true;
      throw error;
    }
  }

  async #readOwnership(): Promise<void> {
    if (this.#spaces.size === 0) return;
    const owned = await readOwnedBuckets(this.#session, this.#facts.workerId);
    for (const [id, space] of this.#spaces) {
      const lost = space.own(owned.find(({ keySpaceId }) => keySpaceId === id));
      if (lost.length > 0) this.#executor.leaveLanes(new Set(lost));
    }
    const lanes = [...this.#executor.held].flatMap(({ lane }) => (lane < 0 ? [lane] : []));
    if (lanes.length === 0) return;
    const stopped = await readStoppedKeys(this.#session, [...new Set(lanes)]);
    const keys = stopped.map((one) => keyId(one.lane, one.tenant, one.partition_key));
    this.#executor.stopKeys(new Set(keys));
  }

  /** Claims from each space as much as is wanted of it. */
  async claim(isNews: boolean, want: WantKeyed, take: TakeRows): Promise<number> {
    const isLookDue = this.#clock.now() - this.#lookedAtMs >= LOOK_MS;
    if (isLookDue) this.#lookedAtMs = this.#clock.now();
    let taken = 0;
    this.#wanted.clear();
    for (const space of this.#spaces.values()) {
      if (space.owns === 0 || want(space) <= 0) continue;
      this.#wanted.add(space);
      await space.open();
      if (isNews) await space.workArrived();
      else if (isLookDue) await space.look();
      taken += await space.claimHeads(want(space), this.#facts, take);
      taken += await space.claim(want(space), this.#facts, take);
    }
    return taken;
  }
}

function isSame(known: KeySpace, space: KeySpace): boolean {
  return (
    known.keyConcurrency === space.keyConcurrency &&
    known.queues.length === space.queues.length &&
    known.queues.every((queue, place) => queue === space.queues[place])
  );
}
