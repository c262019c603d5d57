import type { Clock } from "../../base/clock.ts";
import { ForbiddenError, messageOf, UnavailableError } from "../../base/errors.ts";
import type { JsonText } from "../../base/json-text.ts";
import type { Logger } from "../../base/log.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { Outcome } from "../../tasks/outcome.ts";
import type { EndedClaim, HeldRow } from "../../tasks/sql/by-token.ts";
import { LeaseLostError, type LeaseToken } from "../../tasks/task.ts";
import { type ActDone, RUNNING, toDone, toldAgain } from "./act-answers.ts";
import type { Assignment } from "./assignment.ts";
import type { Desk } from "./desk.ts";

/** What somebody does with a task that they hold. */
export type RemoteAct =
  | { readonly kind: "end"; readonly outcome: Outcome }
  | { readonly kind: "extend"; readonly seconds: number }
  | { readonly kind: "progress"; readonly value: JsonText };

/** Whose act it is. */
export interface Actor {
  readonly tenant: string;
  /** Whether they may do this to tasks of the queue. */
  readonly may: (queue: string) => boolean;
}

type OnDone = (answer: ActDone | Error) => void;

export interface RemoteActsOptions {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** An act whose task is not at this desk. */
interface Asked {
  readonly actor: Actor;
  readonly token: LeaseToken;
  readonly act: RemoteAct;
  readonly onDone: OnDone;
}

/** Of a lease, for whoever counts on it. */
const TRUST = 0.9;
/** In one statement. */
const ASKED_MAX = 1_000;
/** Extends and progress have a statement each: so many at once, or they would take every pool. */
const SINGLE_MAX = 8;

/**
 * Acts on tasks by the whole token of their claim, whichever stream they came by. One that is at
 * this desk is acted on here. Any other is looked for in the database: if the claim stands there,
 * its end is written like those of this desk; if it is over and ended as it is said now, that is
 * said once more, for a worker that did not hear it. Everything else is refused: the claim is lost.
 */
export class RemoteActs {
  readonly #desk: Desk;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #asked: Asked[] = [];
  #isAsking = false;
  readonly #single: (() => Promise<void>)[] = [];
  #singleCount = 0;

  constructor(desk: Desk, { clock, logger }: RemoteActsOptions) {
    this.#desk = desk;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** `onDone` is called once, when what it is told is durable. */
  act(actor: Actor, token: LeaseToken, act: RemoteAct, onDone: OnDone): void {
    const assignment = this.#desk.book.find(token, actor.tenant);
    if (assignment === undefined) {
      this.#ask({ actor, token, act, onDone });
      return;
    }
    if (!assignment.isRunning) {
      // Somebody said how it ended, perhaps the same on another stream.
      assignment.afterAnswer(() => this.#ask({ actor, token, act, onDone }));
      return;
    }
    this.#do(assignment, { actor, token, act, onDone });
  }

  #do(assignment: Assignment, asked: Asked): void {
    const { actor, act, onDone } = asked;
    const { task } = assignment;
    if (!actor.may(task.queue)) {
      onDone(notFor(task.queue));
      return;
    }
    if (act.kind === "end") {
      assignment.end(act.outcome, (answer) => {
        const done = toDone(task, answer);
        // It may have been accepted elsewhere.
        if (done instanceof LeaseLostError) void this.#lookBack([asked]);
        else onDone(done);
      });
      return;
    }
    this.#doSingle(
      () =>
        act.kind === "extend"
          ? this.#extend(assignment, act.seconds)
          : assignment.context.progress(act.value).then(() => RUNNING),
      onDone,
    );
  }

  /** The same for one that is at this desk, whose worker needs no token. */
  extend(assignment: Assignment, seconds: number, onDone: OnDone): void {
    this.#doSingle(() => this.#extend(assignment, seconds), onDone);
  }

  #doSingle(work: () => Promise<ActDone>, onDone: OnDone): void {
    this.#single.push(async () => {
      this.#tell(onDone, await work().catch(asError));
    });
    this.#startSingle();
  }

  /** For answers behind which nobody waits: what is thrown there would end the process. */
  #tell(onDone: OnDone, answer: ActDone | Error): void {
    try {
      onDone(answer);
    } catch (error) {
      this.#logger.error({ error: messageOf(error) }, "could not answer an act");
    }
  }

  #startSingle(): void {
    while (this.#singleCount < SINGLE_MAX) {
      const next = this.#single.shift();
      if (next === undefined) return;
      this.#singleCount += 1;
      void next().finally(() => {
        this.#singleCount -= 1;
        this.#startSingle();
      });
    }
  }

  async #extend({ task, context }: Assignment, seconds: number): Promise<ActDone> {
    const leftMs = timeoutMsOf(task) - (this.#clock.now() - task.startedAtMs);
    if (leftMs <= 0) throw new LeaseLostError(task.token); // Its time is up.
    const until = await context.extend(Math.min(seconds, leftMs / 1000));
    return { ...RUNNING, until, remainingMs: remainingMs(task, this.#clock) };
  }

  /** While some are asked for, others gather. */
  #ask(asked: Asked): void {
    this.#asked.push(asked);
    if (this.#isAsking) return;
    this.#isAsking = true;
    setImmediate(() => void this.#askAll());
  }

  async #askAll(): Promise<void> {
    try {
      while (this.#asked.length > 0) await this.#askSome(this.#asked.splice(0, ASKED_MAX));
    } finally {
      this.#isAsking = false;
    }
  }

  async #askSome(asked: readonly Asked[]): Promise<void> {
    let rows: (HeldRow | undefined)[];
    try {
      rows = await this.#desk.tokens.find(asked.map(tenantToken));
      await this.#handle(rows);
    } catch (error) {
      for (const { onDone } of asked) this.#tell(onDone, asError(error));
      return;
    }
    const over: Asked[] = [];
    for (const [place, one] of asked.entries()) {
      const row = rows[place];
      if (row === undefined) {
        over.push(one);
        continue;
      }
      try {
        this.#doHeld(row, one);
      } catch (error) {
        this.#tell(one.onDone, asError(error));
      }
    }
    if (over.length > 0) await this.#lookBack(over);
  }

  async #handle(rows: readonly (HeldRow | undefined)[]): Promise<void> {
    const queues = new Map<string, Set<string>>();
    for (const row of rows) {
      if (row === undefined) continue;
      const ofTenant = queues.get(row.tenant) ?? new Set();
      queues.set(row.tenant, ofTenant.add(row.queue));
    }
    for (const [tenant, names] of queues) await this.#desk.handle([...names], tenant);
  }

  /**
   * The claim stands. Whoever else acts by it at the same time is first, or comes too late. Throws
   * what its actor is to be told.
   */
  #doHeld(row: HeldRow, asked: Asked): void {
    const { actor, act, onDone } = asked;
    if (!actor.may(row.queue)) throw notFor(row.queue);
    if (act.kind === "end") {
      const again = this.#desk.book.find(asked.token, actor.tenant);
      if (again?.isEnding === true) {
        // Held a second time, it would be ended twice in one statement.
        again.afterAnswer(() => this.#ask(asked));
        return;
      }
      const assignment = again?.isRunning === true ? again : this.#desk.custody.hold(row);
      if (assignment === undefined) throw new UnavailableError("this server is stopping");
      const tell: OnDone = (answer) => {
        if (!(answer instanceof Error)) this.#desk.custody.outsideEnded(row.id);
        onDone(answer);
      };
      this.#do(assignment, { ...asked, onDone: tell });
      return;
    }
    const { tokens } = this.#desk;
    this.#doSingle(async () => {
      if (act.kind === "progress") {
        await tokens.progress(asked.token, act.value.text);
        return RUNNING;
      }
      const { until, seconds } = await tokens.extend(tenantToken(asked), act.seconds);
      return { ...RUNNING, until, remainingMs: Math.floor(seconds * 1000 * TRUST) };
    }, onDone);
  }

  /** The claims are over: perhaps they ended as it is said now. */
  async #lookBack(asked: readonly Asked[]): Promise<void> {
    let ends: (EndedClaim | undefined)[];
    try {
      ends = await this.#desk.tokens.ended(asked.map(tenantToken));
    } catch (error) {
      for (const { onDone } of asked) this.#tell(onDone, asError(error));
      return;
    }
    for (const [place, { token, act, onDone }] of asked.entries()) {
      const end = ends[place];
      const isEnd = act.kind === "end" && end !== undefined;
      const again = isEnd ? toldAgain(act.outcome, end) : undefined;
      this.#tell(onDone, again ?? new LeaseLostError(token));
    }
  }
}

const tenantToken = ({ token, actor: { tenant } }: Asked) => ({ ...token, tenant });

const notFor = (queue: string): Error =>
  new ForbiddenError(`this token is not for queue ${JSON.stringify(queue)}`);

const asError = (error: unknown): Error =>
  error instanceof Error ? error : new Error(String(error));

/** How long the worker may count on the lease: less than what the database says. */
export function remainingMs({ trustedUntilMs }: ClaimedTask, clock: Clock): number {
  return Math.max(0, Math.floor(trustedUntilMs - clock.now()));
}

/** Infinity when the task may take as long as it wants. */
export function timeoutMsOf({ options, handler }: ClaimedTask): number {
  const seconds = options.timeoutSeconds ?? handler.queue.settings.timeoutSeconds;
  return seconds === null || seconds === undefined ? Infinity : seconds * 1000;
}
