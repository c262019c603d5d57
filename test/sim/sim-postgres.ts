import type { Random } from "../support/random.ts";
import { type Run, ServerError, type Steps } from "./run.ts";
import { type Pace, type Request, Session, type SessionOwner } from "./session.ts";
import { Store, type Transaction } from "./store.ts";
import type { Timeline } from "./timeline.ts";

/** What a statement does, found by its name. */
export type Statements = (request: Request, run: Run, session: Session) => Steps<readonly object[]>;

export interface ServerWatcher {
  readonly onCommit: (tx: Transaction) => void;
  /** A crash took back these commits, which nobody had been told were durable. */
  readonly onLost: (txs: readonly Transaction[]) => void;
}

/** The server's clock at the beginning; no process shares it. */
const EPOCH_MS = Date.UTC(2031, 4, 1);
/** What commits without waiting for the disk is on it after so long. */
const WALWRITER_MS = 300;

/** A PostgreSQL in memory: sessions, locks between them, notifications, its own clock, crashes. */
export class SimPostgres {
  readonly timeline: Timeline;
  readonly store = new Store();
  readonly statements: Statements;
  readonly pace: Pace | undefined;
  /** Whoever has an advisory lock, by key. */
  readonly advisory = new Map<string, Session>();
  startedAt: number;
  isUp = true;
  watcher: ServerWatcher | undefined;
  readonly #sessions = new Set<Session>();
  /** In the order in which they began to wait. */
  readonly #waiting = new Set<Session>();
  #pid = 100;
  readonly #onCrash: (() => void)[] = [];
  #onAsync: (() => void) | undefined;

  /** @param pace undefined: each statement runs at once to its end, or to where it must wait */
  constructor(timeline: Timeline, statements: Statements, pace: Pace | undefined) {
    this.timeline = timeline;
    this.statements = statements;
    this.pace = pace;
    this.startedAt = this.clock() - 3_600_000;
  }

  clock(): number {
    return EPOCH_MS + this.timeline.now;
  }

  connect(owner: SessionOwner): Session {
    this.#pid += 1;
    const session = new Session(this, this.#pid, owner);
    this.#sessions.add(session);
    return session;
  }

  commit(tx: Transaction, isFlushed: boolean): void {
    this.store.commit(tx, isFlushed);
    if (tx.xid !== undefined) {
      if (!isFlushed) this.#flushLater();
      this.watcher?.onCommit(tx);
      this.#wake(tx);
    }
    for (const { channel, payload } of tx.notices) {
      for (const session of this.#sessions) session.hear(channel, payload);
    }
  }

  #flushLater(): void {
    this.timeline.after(WALWRITER_MS, () => this.isUp && this.store.flush());
    this.#onAsync?.();
    this.#onAsync = undefined;
  }

  /** Called when something was committed that is not flushed yet. */
  onNextAsync(wake: () => void): void {
    this.#onAsync = wake;
  }

  abort(tx: Transaction): void {
    this.store.abort(tx);
    this.#wake(tx);
  }

  #wake(tx: Transaction): void {
    for (const session of this.#waiting) session.retry(tx.touched);
  }

  wait(session: Session): void {
    this.#waiting.add(session);
  }

  stopWaiting(session: Session): void {
    this.#waiting.delete(session);
  }

  isDeadlocked(session: Session): boolean {
    const holders = (one: Session): Session[] =>
      [...this.#sessions].filter((other) =>
        one.blockers.includes(other.transaction?.xid ?? Number.NaN),
      );
    const seen = new Set<Session>();
    const leadsBack = (one: Session): boolean =>
      holders(one).some((other) => {
        if (other === session) return true;
        if (seen.has(other)) return false;
        seen.add(other);
        return leadsBack(other);
      });
    return leadsBack(session);
  }

  forget(session: Session): void {
    this.#sessions.delete(session);
    for (const [key, holder] of this.advisory) if (holder === session) this.advisory.delete(key);
  }

  /** Ends the session as pg_terminate_backend does. */
  terminate(session: Session): void {
    const message = "terminating connection due to administrator command";
    session.terminate(new ServerError("57P01", message));
  }

  onCrash(forget: () => void): void {
    this.#onCrash.push(forget);
  }

  /** Ends everything at once, and comes back after a while without what was not flushed. */
  crash(downMs: number, random: Random): void {
    if (!this.isUp) return;
    this.isUp = false;
    // A commit that was being flushed may have made it.
    for (const session of this.#sessions) {
      const tx = session.transaction;
      if (tx === undefined || !session.isCommitting || random.chance(0.5)) continue;
      session.forgetTransaction();
      this.store.commit(tx, true);
      this.watcher?.onCommit(tx);
    }
    const open = [...this.#sessions].flatMap(({ transaction }) => transaction ?? []);
    const lost = this.store.crash(open);
    this.watcher?.onLost(lost);
    const sessions = [...this.#sessions];
    this.#sessions.clear();
    this.#waiting.clear();
    this.advisory.clear();
    for (const forget of this.#onCrash) forget();
    const error = new ServerError("57P02", "terminating connection because of crash");
    for (const session of sessions) session.vanish(error);
    this.timeline.after(downMs, () => {
      this.isUp = true;
      this.startedAt = this.clock();
    });
  }
}
