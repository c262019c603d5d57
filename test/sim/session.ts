import type { Random } from "../support/random.ts";
import { type Pause, Run, ServerError, type Steps } from "./run.ts";
import type { SimPostgres } from "./sim-postgres.ts";
import { Transaction } from "./store.ts";

export interface Request {
  readonly id: number;
  /** Of a statement of the engine's; undefined for the few texts that have none. */
  readonly name: string | undefined;
  readonly text: string;
  readonly values: readonly unknown[];
}

export interface Reply {
  readonly id: number;
  /** Of the statement, or its text. */
  readonly name: string;
  readonly rows: readonly object[];
  readonly command: string;
  readonly error: ServerError | undefined;
  /** Whether a transaction is open afterwards. */
  readonly isInTransaction: boolean;
}

export interface SessionOwner {
  readonly answer: (reply: Reply) => void;
  readonly notify: (channel: string, payload: string) => void;
  /** The session has ended by the server's will. */
  readonly onEnd: (error: ServerError) => void;
}

/** How long things take, as drawn. */
export interface Pace {
  readonly random: Random;
}

const DEADLOCK_MS = 1_000;
const FLUSH_MS_MAX = 8;
/** A statement that comes in between others, now and then by much. */
const dawdle = ({ random }: Pace): number => {
  if (random.chance(0.9)) return 0;
  return random.chance(0.9) ? random.next() * 2 : random.next() * 40;
};

const done: Reply["rows"] = [];

/** One backend: takes requests in order, one at a time, whoever still waits for the answer. */
export class Session {
  readonly pid: number;
  readonly listening = new Set<string>();
  lockTimeoutMs: number | undefined;
  readonly #server: SimPostgres;
  readonly #owner: SessionOwner;
  readonly #requests: Request[] = [];
  #tx: Transaction | undefined;
  #isBlock = false;
  #hasFailed = false;
  #steps: Steps<void> | undefined;
  #wait: { readonly pause: Pause & { row: unknown }; readonly cancels: (() => void)[] } | undefined;
  #isLeaving = false;
  #isGone = false;
  #isCommitting = false;

  constructor(server: SimPostgres, pid: number, owner: SessionOwner) {
    this.#server = server;
    this.pid = pid;
    this.#owner = owner;
  }

  get transaction(): Transaction | undefined {
    return this.#tx;
  }
  get isCommitting(): boolean {
    return this.#isCommitting;
  }
  /** For whom it waits now. */
  get blockers(): readonly number[] {
    const pause = this.#wait?.pause;
    return pause !== undefined && "blockers" in pause ? pause.blockers : [];
  }

  /** Whether it runs a statement that waits for others. */
  get isBlocked(): boolean {
    return this.#wait !== undefined;
  }

  receive(request: Request): void {
    if (this.#isGone || this.#isLeaving) return;
    this.#requests.push(request);
    this.#takeNext();
  }

  /** The client has gone: what runs is run to its end, and what was not committed is undone. */
  leave(isReset: boolean): void {
    this.#isLeaving = true;
    if (isReset) this.#requests.length = 0; // What the kernel had received is gone, too.
    if (this.#steps === undefined) this.#end();
  }

  /** Ends it now, unless it commits just then. */
  terminate(error: ServerError): void {
    if (this.#isGone) return;
    if (this.#isCommitting) {
      this.#server.timeline.after(1, () => this.terminate(error));
      return;
    }
    this.#steps = undefined;
    this.#end();
    this.#owner.onEnd(error);
  }

  /** The server crashed: its transactions are undone already. */
  vanish(error: ServerError): void {
    this.#isGone = true;
    this.#steps = undefined;
    this.#stopWaiting();
    this.#owner.onEnd(error);
  }

  /** A crash came while it committed, and the commit had made it. */
  forgetTransaction(): void {
    this.#tx = undefined;
  }

  hear(channel: string, payload: string): void {
    if (this.listening.has(channel)) this.#owner.notify(channel, payload);
  }

  #end(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#requests.length = 0;
    this.#stopWaiting();
    const tx = this.#tx;
    this.#tx = undefined;
    if (tx !== undefined) this.#server.abort(tx);
    this.#server.forget(this);
  }

  #takeNext(): void {
    if (this.#steps !== undefined || this.#isGone) return;
    const request = this.#requests.shift();
    if (request === undefined) {
      if (this.#isLeaving) this.#end();
      return;
    }
    this.#steps = this.#serve(request);
    this.#go();
  }

  /** Goes on until it has to wait. */
  #go(): void {
    const steps = this.#steps;
    if (steps === undefined || this.#isGone) return;
    this.#follow(steps, () => steps.next());
  }

  #follow(steps: Steps<void>, step: () => IteratorResult<Pause, void>): void {
    const { done: isDone, value } = step();
    if (isDone === true) {
      this.#stopWaiting();
      this.#steps = undefined;
      this.#takeNext();
      return;
    }
    if ("ms" in value) {
      this.#stopWaiting();
      this.#server.timeline.after(value.ms, () => {
        if (this.#steps === steps) this.#go();
      });
    } else this.#waitFor(steps, value);
  }

  #waitFor(steps: Steps<void>, pause: Pause & { row: unknown }): void {
    if (this.#wait !== undefined) {
      this.#wait = { ...this.#wait, pause }; // Keeps its place in the line, and its deadline.
      return;
    }
    const fail = (code: string, message: string) => (): void => {
      if (this.#steps !== steps || this.#isGone) return;
      this.#follow(steps, () => steps.throw(new ServerError(code, message)));
    };
    const { timeline } = this.#server;
    const cancels = [
      timeline.after(DEADLOCK_MS, () => {
        if (this.#server.isDeadlocked(this)) fail("40P01", "deadlock detected")();
      }),
    ];
    const patienceMs = this.#tx?.lockTimeoutMs ?? this.lockTimeoutMs;
    if (patienceMs !== undefined) {
      const message = "canceling statement due to lock timeout";
      cancels.push(timeline.after(patienceMs, fail("55P03", message)));
    }
    this.#wait = { pause, cancels };
    this.#server.wait(this);
  }

  #stopWaiting(): void {
    if (this.#wait === undefined) return;
    for (const cancel of this.#wait.cancels) cancel();
    this.#wait = undefined;
    this.#server.stopWaiting(this);
  }

  /** Somebody ended: perhaps it may go on. */
  retry(touched: ReadonlySet<unknown>): void {
    const wait = this.#wait;
    if (wait === undefined || !touched.has(wait.pause.row)) return;
    this.#server.timeline.after(0, () => {
      if (this.#wait !== undefined) this.#go();
    });
  }

  *#serve(request: Request): Steps<void> {
    let rows = done;
    let error: ServerError | undefined;
    const command = request.name === undefined ? (request.text.split(" ")[0] ?? "") : "";
    let answered = command;
    try {
      if (command === "BEGIN") {
        if (this.#isBlock) throw new Error("a transaction began in another");
        this.#begin(true);
      } else if (command === "COMMIT" || command === "ROLLBACK") {
        if (this.#hasFailed || command === "ROLLBACK") {
          answered = "ROLLBACK";
          this.#rollBack();
        } else yield* this.#commit();
      } else rows = yield* this.#execute(request);
    } catch (thrown) {
      if (!(thrown instanceof ServerError)) throw thrown;
      error = thrown;
      const isBlock = this.#isBlock;
      this.#rollBack(); // Its locks are free at once, but the block is there until its end.
      this.#isBlock = isBlock;
      this.#hasFailed = isBlock;
    }
    const isInTransaction = this.#isBlock;
    const name = request.name ?? request.text;
    this.#owner.answer({ id: request.id, name, rows, command: answered, error, isInTransaction });
  }

  #begin(isBlock: boolean): Transaction {
    const tx = new Transaction(this.#server.clock());
    this.#tx = tx;
    this.#isBlock = isBlock;
    this.#hasFailed = false;
    return tx;
  }

  *#execute(request: Request): Steps<readonly object[]> {
    if (this.#hasFailed) {
      throw new ServerError("25P02", "current transaction is aborted, commands are ignored");
    }
    const { store, statements, pace } = this.#server;
    const tx = this.#tx ?? this.#begin(false);
    tx.command += 1;
    const run = new Run({
      store,
      tx,
      clock: () => this.#server.clock(),
      dawdleMs: () => (pace === undefined ? 0 : dawdle(pace)),
    });
    try {
      const rows = yield* statements(request, run, this);
      if (!this.#isBlock) yield* this.#commit();
      return rows;
    } finally {
      store.dropSnapshot(run.snapshot);
    }
  }

  *#commit(): Steps<void> {
    const tx = this.#tx;
    if (tx === undefined) return;
    const { pace } = this.#server;
    const isFlushed = tx.xid !== undefined && !tx.isAsync;
    if (isFlushed && pace !== undefined) {
      this.#isCommitting = true;
      yield { ms: pace.random.next() * FLUSH_MS_MAX };
      this.#isCommitting = false;
    }
    this.#tx = undefined;
    this.#isBlock = false;
    this.#server.commit(tx, isFlushed);
  }

  #rollBack(): void {
    const tx = this.#tx;
    this.#tx = undefined;
    this.#isBlock = false;
    this.#hasFailed = false;
    if (tx !== undefined) this.#server.abort(tx);
  }
}
