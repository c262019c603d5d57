export type LockMode = "key-share" | "share" | "no-key-update" | "update";

/** As in PostgreSQL's table of row-level locks. */
const CONFLICTS: Readonly<Record<LockMode, readonly LockMode[]>> = {
  "key-share": ["update"],
  share: ["no-key-update", "update"],
  "no-key-update": ["share", "no-key-update", "update"],
  update: ["key-share", "share", "no-key-update", "update"],
};
const STRENGTH: readonly LockMode[] = ["key-share", "share", "no-key-update", "update"];

export interface Version<T> {
  readonly data: T;
  readonly xmin: number;
  readonly cmin: number;
  /** The first of its row, or the first after the row was deleted: no update led here. */
  readonly isFresh: boolean;
  xmax: number;
  cmax: number;
}

/** One row: its versions from the oldest to the newest, and who has it locked. */
export class StoredRow<T = unknown> {
  versions: Version<T>[] = [];
  readonly locks = new Map<number, LockMode>();

  get newest(): Version<T> | undefined {
    return this.versions.at(-1);
  }

  /** Transactions for whose end one must wait to lock it so. */
  blockers(own: number | undefined, mode: LockMode): number[] {
    const others = [...this.locks].filter(([xid, held]) => {
      return xid !== own && CONFLICTS[mode].includes(held);
    });
    return others.map(([xid]) => xid);
  }

  lock(xid: number, mode: LockMode): void {
    const held = this.locks.get(xid);
    if (held !== undefined && STRENGTH.indexOf(held) >= STRENGTH.indexOf(mode)) return;
    this.locks.set(xid, mode);
  }

  write(data: T | undefined, xid: number, command: number): void {
    const { newest } = this;
    const isFresh = newest === undefined || newest.xmax !== 0;
    if (!isFresh) [newest.xmax, newest.cmax] = [xid, command];
    if (data === undefined) return;
    this.versions.push({ data, xmin: xid, cmin: command, isFresh, xmax: 0, cmax: 0 });
  }

  /** As if the transaction had never been. */
  undo(xid: number): void {
    this.versions = this.versions.filter((version) => version.xmin !== xid);
    for (const version of this.versions) if (version.xmax === xid) version.xmax = 0;
  }
}

export class Table<T> {
  readonly rows = new Map<string, StoredRow<T>>();
  readonly #keyOf: (row: T) => unknown;

  constructor(keyOf: (row: T) => unknown) {
    this.#keyOf = keyOf;
  }

  keyOf(row: T): string {
    return JSON.stringify(this.#keyOf(row));
  }

  /** The row of this key, there or not. */
  at(key: string): StoredRow<T> {
    let row = this.rows.get(key);
    if (row === undefined) {
      row = new StoredRow<T>();
      this.rows.set(key, row);
    }
    return row;
  }

  /** What is committed now, for those who look from outside. */
  committed(isRunning: (xid: number) => boolean): T[] {
    return [...this.rows.values()].flatMap((row) => {
      const seen = row.versions.find((version) => {
        const isEnded = version.xmax !== 0 && !isRunning(version.xmax);
        return !isRunning(version.xmin) && !isEnded;
      });
      return seen === undefined ? [] : [seen.data];
    });
  }
}

/** A table of whatever rows. */
export type AnyTable = Pick<Table<unknown>, "rows">;

export interface Snapshot {
  readonly next: number;
  readonly running: ReadonlySet<number>;
  /** Statements of the own transaction before this one are seen. */
  readonly command: number;
}

export interface Change {
  readonly table: AnyTable;
  readonly before: unknown;
  readonly after: unknown;
}

export class Transaction {
  xid: number | undefined;
  command = 0;
  /** NOW(). */
  readonly startedAt: number;
  readonly touched = new Set<StoredRow>();
  readonly changes: Change[] = [];
  readonly notices: { readonly channel: string; readonly payload: string }[] = [];
  /** What its client said that it does, for those who check. */
  readonly acts: object[] = [];
  lockTimeoutMs: number | undefined;
  isAsync = false;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
  }
}

/** What a crash leaves of what was not flushed is nothing. */
interface LogRecord {
  readonly nextXid: number;
  readonly sequence?: number;
  readonly commit?: Transaction;
}

const FIRST_XID = 1_000;
/** A sequence writes so many numbers ahead to its log. */
const SEQUENCE_AHEAD = 32;
const VACUUM_EVERY = 100;

/**
 * Rows in versions, transactions, row locks and the log: what a statement needs of PostgreSQL to
 * mean the same. Nothing here waits; whoever must is told for whom.
 */
export class Store {
  readonly #tables = new Set<AnyTable>();
  readonly #running = new Set<number>();
  readonly #snapshots = new Set<Snapshot>();
  #nextXid = FIRST_XID;
  #unflushed: LogRecord[] = [];
  #durable: { nextXid: number; sequence: number } = { nextXid: FIRST_XID, sequence: 0 };
  #sequence = { last: 0, logged: 0 };
  #commits = 0;

  table<T>(keyOf: (row: T) => unknown): Table<T> {
    const table = new Table<T>(keyOf);
    this.#tables.add(table);
    return table;
  }

  readonly isRunning = (xid: number): boolean => this.#running.has(xid);

  committed<T>(table: Table<T>): T[] {
    return table.committed(this.isRunning);
  }

  xidOf(tx: Transaction): number {
    if (tx.xid === undefined) {
      tx.xid = this.#nextXid;
      this.#nextXid += 1;
      this.#running.add(tx.xid);
    }
    return tx.xid;
  }

  takeSnapshot(tx: Transaction): Snapshot {
    const snapshot = {
      next: this.#nextXid,
      running: new Set(this.#running),
      command: tx.command,
    };
    this.#snapshots.add(snapshot);
    return snapshot;
  }

  dropSnapshot(snapshot: Snapshot): void {
    this.#snapshots.delete(snapshot);
  }

  oldestRunning({ running, next }: Snapshot): number {
    return Math.min(next, ...running);
  }

  /** The version of the row that the snapshot shows. */
  see<T>(row: StoredRow<T>, snapshot: Snapshot, own: number | undefined): Version<T> | undefined {
    // The newest is the one that is looked for, most of the time.
    for (let place = row.versions.length - 1; place >= 0; place -= 1) {
      const version = row.versions[place]!;
      const { xmin, cmin, xmax, cmax } = version;
      if (!isSeen(xmin, cmin, snapshot, own)) continue;
      return xmax !== 0 && isSeen(xmax, cmax, snapshot, own) ? undefined : version;
    }
    return undefined;
  }

  nextNumber(): number {
    const sequence = this.#sequence;
    if (sequence.last === sequence.logged) {
      sequence.logged += SEQUENCE_AHEAD;
      this.#unflushed.push({ nextXid: this.#nextXid, sequence: sequence.logged });
    }
    sequence.last += 1;
    return sequence.last;
  }

  get lastNumber(): number {
    return this.#sequence.last;
  }

  /** Makes what the transaction wrote visible; durable only once it is flushed. */
  commit(tx: Transaction, isFlushed: boolean): void {
    if (tx.xid === undefined) return;
    this.#running.delete(tx.xid);
    this.#unflushed.push({ nextXid: this.#nextXid, commit: tx });
    if (isFlushed) this.flush();
    this.#release(tx);
    this.#commits += 1;
    if (this.#commits % VACUUM_EVERY === 0) this.#vacuum();
  }

  abort(tx: Transaction): void {
    if (tx.xid === undefined) return;
    this.#running.delete(tx.xid);
    for (const row of tx.touched) row.undo(tx.xid);
    this.#release(tx);
  }

  #release(tx: Transaction): void {
    for (const row of tx.touched) row.locks.delete(tx.xid ?? 0);
  }

  flush(): void {
    for (const { nextXid, sequence } of this.#unflushed) {
      this.#durable = { nextXid, sequence: sequence ?? this.#durable.sequence };
    }
    this.#unflushed = [];
  }

  /** Ends whatever runs, and takes back commits that were not flushed. Returns those. */
  crash(open: Iterable<Transaction>): Transaction[] {
    for (const tx of open) this.abort(tx);
    const lost = this.#unflushed.flatMap(({ commit }) => commit ?? []);
    for (const tx of lost.toReversed()) {
      for (const row of tx.touched) row.undo(tx.xid ?? 0);
    }
    this.#unflushed = [];
    this.#running.clear();
    this.#snapshots.clear();
    this.#nextXid = this.#durable.nextXid;
    const { sequence } = this.#durable;
    this.#sequence = { last: sequence, logged: sequence };
    return lost;
  }

  /** Forgets versions that nobody can see any more, not even after a crash. */
  #vacuum(): void {
    const lossable = new Set(this.#unflushed.flatMap(({ commit }) => commit?.xid ?? []));
    const horizons = [...this.#snapshots].map((snapshot) => this.oldestRunning(snapshot));
    const horizon = Math.min(this.#nextXid, ...this.#running, ...horizons);
    const isDead = ({ xmax }: Version<unknown>): boolean =>
      xmax !== 0 && xmax < horizon && !lossable.has(xmax);
    for (const table of this.#tables) {
      for (const [key, row] of table.rows) {
        row.versions = row.versions.filter((version) => !isDead(version));
        if (row.versions.length === 0 && row.locks.size === 0) table.rows.delete(key);
      }
    }
  }
}

function isSeen(
  xid: number,
  command: number,
  snapshot: Snapshot,
  own: number | undefined,
): boolean {
  if (xid === own) return command < snapshot.command;
  return xid < snapshot.next && !snapshot.running.has(xid);
}
