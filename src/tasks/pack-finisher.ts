import { exponentialMs } from "../base/backoff.ts";
import { Bell } from "../base/bell.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { runLoop, type TurnResult } from "../base/loop.ts";
import type { Service } from "../base/supervisor.ts";
import type { Queryable } from "../db/database.ts";
import { isRefusal } from "../db/sqlstate.ts";
import { PACK_TASKS_MAX } from "./claimed-pack.ts";
import type { ClaimedTask, TaskPack } from "./claimed-task.ts";
import type { EndedClaims } from "./ended-claims.ts";
import { PackUse } from "./pack-use.ts";
import type { Settlement } from "./sql/finish.ts";
import { openClaimedPacks } from "./sql/open-packs.ts";
import { completePacks, type PackAnswer } from "./sql/packs.ts";

export interface PackFinisherOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The database has accepted the completion of the task. */
  readonly onCompleted: (task: ClaimedTask, settlement: Settlement, nowMs: number) => void;
  /** The pack is open: how its task ended is to be written by itself. */
  readonly onOpened: (task: ClaimedTask, isDoubtful: boolean) => void;
  /** A batch was answered for. */
  readonly onAnswered: () => void;
  readonly endedClaims: EndedClaims;
  /** How long ends wait for those of the other tasks of their pack. Defaults to 20. */
  readonly lingerMs?: number | undefined;
}

const FLUSH_MAX = 2_000 / PACK_TASKS_MAX;
/**
 * So many are sent before the last answer is dealt with: the server need not wait for that. Few,
 * because of keyed tasks not more may be on their way than there are keys.
 */
const FLUSH_EARLY = 3;
const LINGER_MS = 20;
const LOCKED_MS = 50;
const RETRY_MS_MAX = 2_000;
const IDLE_MS = 60_000;

/** A batch that is on its way. */
interface Flight {
  readonly packs: readonly TaskPack[];
  readonly answer: Promise<PackAnswer>;
}

/**
 * Writes the ends of tasks that were claimed as packs. When all tasks of a pack have completed, the
 * pack is completed as one. When something else became of one, or when the others take too long,
 * the pack is opened, and from there its tasks are the finisher's, like any others. A pack whose
 * COMMIT was not answered is sent again: when it is gone, history tells of each of its tasks.
 */
export class PackFinisher implements Service {
  readonly name = "pack-finisher";
  readonly #db: Queryable;
  readonly #options: PackFinisherOptions;
  readonly #bell = new Bell();
  /** Of which some tasks have ended. */
  readonly #lingering = new Set<TaskPack>();
  #full: TaskPack[] = [];
  #flight: Flight | undefined;
  /** Whether packs of a queue are worth taking whole. */
  readonly use: PackUse;
  #onEmpty: (() => void)[] = [];
  readonly #lingerMs: number;

  constructor(db: Queryable, options: PackFinisherOptions) {
    this.#db = db;
    this.#options = options;
    this.#lingerMs = options.lingerMs ?? LINGER_MS;
    this.use = new PackUse(options.clock);
  }

  /** A task of a pack that is not open has ended. */
  add(pack: TaskPack, task: ClaimedTask): void {
    pack.ended.push(task);
    if (task.settlement?.kind !== "complete" || task.isCompletedByHandler) pack.mustOpen = true;
    if (pack.ended.length === 1) {
      pack.endedAtMs = this.#options.clock.now();
      this.#lingering.add(pack);
    }
    if (pack.state !== "closed") return; // It is being opened, and its ends are passed on then.
    const isFull = pack.ended.length === pack.tasks.length && !pack.mustOpen;
    if (isFull) {
      this.#lingering.delete(pack);
      pack.state = "sending";
      this.#full.push(pack);
    }
    if (isFull || pack.mustOpen || this.#lingering.size === 1) this.#bell.ring();
  }

  /** Opens those that are closed, and gives those that somebody has locked. */
  async open(packs: Iterable<TaskPack>, db: Queryable): Promise<ReadonlySet<TaskPack>> {
    const all = [...packs];
    const closed = all.filter((pack) => pack.state === "closed");
    if (closed.length > 0) {
      const opening = this.#open(closed, db);
      for (const pack of closed) {
        pack.state = "opening";
        pack.opening = opening;
      }
    }
    await Promise.all(all.flatMap(({ opening }) => opening ?? []));
    return new Set(all.filter((pack) => pack.state === "closed"));
  }

  async #open(packs: readonly TaskPack[], db: Queryable): Promise<void> {
    const answering = openClaimedPacks(db, packs);
    try {
      const { locked } = await answering;
      for (const pack of packs) {
        if (locked.has(pack.id)) this.#closeAgain(pack);
        else this.#opened(pack);
      }
    } catch (error) {
      for (const pack of packs) this.#closeAgain(pack);
      throw error;
    }
  }

  /** Its row is gone: what ended of it is the finisher's now. */
  #opened(pack: TaskPack): void {
    pack.state = "open";
    pack.opening = undefined;
    this.#lingering.delete(pack);
    for (const task of pack.ended.splice(0)) this.#options.onOpened(task, pack.isDoubtful);
    this.#bell.ring(); // Somebody may wait for the last of them.
  }

  #closeAgain(pack: TaskPack): void {
    pack.state = "closed";
    pack.opening = undefined;
    pack.restsUntilMs = this.#options.clock.now() + LOCKED_MS;
    if (pack.ended.length > 0) this.#lingering.add(pack);
    this.#bell.ring();
  }

  get isEmpty(): boolean {
    return this.#lingering.size + this.#full.length === 0 && this.#flight === undefined;
  }

  /** Resolves when everything added so far was answered, or passed on. */
  empty(): Promise<void> {
    if (this.isEmpty) return Promise.resolve();
    return new Promise((resolve) => this.#onEmpty.push(resolve));
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not write how packs ended");
      return exponentialMs(failures, 50, RETRY_MS_MAX);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.#bell, onFailure }, signal);
  }

  async #turn(): Promise<TurnResult> {
    // What else ends in this round of the event loop goes along.
    await new Promise<void>((resolve) => setImmediate(resolve));
    const nowMs = this.#options.clock.now();
    const closed = [...this.#lingering].filter((pack) => pack.state === "closed");
    const due = closed.filter((pack) => this.#dueMs(pack) <= nowMs);
    // First on the wire, however much else there is to write: these have waited. What else there is
    // does not wait for their answer, which may be that it cannot be done.
    for (const { queue } of due) this.use.opened(queue);
    const opening = due.length === 0 ? undefined : this.open(due, this.#db);
    opening?.catch(() => {}); // Awaited below, unless the batch fails.
    if (this.#flight === undefined) this.#send(1);
    const flight = this.#flight;
    if (flight !== undefined) await this.#land(flight);
    await opening;
    if (flight !== undefined || due.length > 0) return "again";
    return this.#rest(closed, nowMs);
  }

  #rest(closed: readonly TaskPack[], nowMs: number): TurnResult {
    if (this.#lingering.size > 0) {
      return { restMs: Math.min(IDLE_MS, ...closed.map((pack) => this.#dueMs(pack) - nowMs)) };
    }
    for (const resolve of this.#onEmpty.splice(0)) resolve();
    return { restMs: IDLE_MS };
  }

  #dueMs(pack: TaskPack): number {
    const endsMs = pack.mustOpen ? 0 : pack.endedAtMs + this.#lingerMs;
    return Math.max(endsMs, pack.restsUntilMs);
  }

  /** The next batch, if at least so many packs are full. */
  #send(atLeast: number): void {
    if (this.#full.length < atLeast) return;
    const packs = this.#full.splice(0, FLUSH_MAX);
    const answer = this.#complete(packs);
    answer.catch(() => {}); // Whoever waits for it is told.
    this.#flight = { packs, answer };
  }

  async #land({ packs, answer }: Flight): Promise<void> {
    const { clock, onCompleted, onAnswered } = this.#options;
    let told: PackAnswer;
    try {
      told = await answer;
    } finally {
      this.#flight = undefined;
    }
    const { done, locked } = told;
    this.#send(FLUSH_EARLY);
    const nowMs = clock.now();
    for (const pack of packs) {
      if (done.has(pack.id)) {
        pack.state = "completed";
        this.use.completed(pack.queue);
        for (const task of pack.tasks) {
          if (task.settlement !== undefined) onCompleted(task, task.settlement, nowMs);
        }
      } else if (locked.has(pack.id)) {
        pack.mustOpen = true;
        this.#closeAgain(pack);
      } else this.#opened(pack);
    }
    onAnswered();
  }

  async #complete(packs: readonly TaskPack[]): Promise<PackAnswer> {
    const { endedClaims } = this.#options;
    const claims = endedClaims.all();
    try {
      const answer = await completePacks(this.#db, packs, claims);
      endedClaims.forget(claims);
      return answer;
    } catch (error) {
      // What the server refuses, or what is more than fits into one text, is found task by task.
      if (isRefusal(error) || error instanceof RangeError) {
        return { done: NONE, locked: new Set(packs.map((pack) => pack.id)) };
      }
      for (const pack of packs) pack.isDoubtful = true;
      this.#full.unshift(...packs);
      throw error;
    }
  }
}

const NONE: ReadonlySet<string> = new Set();
