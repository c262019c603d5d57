import type { LockMode, Snapshot, Store, StoredRow, Table, Transaction, Version } from "./store.ts";

/** Why a statement does not go on: others have the row, or its process has other things to do. */
export type Pause =
  | { readonly row: StoredRow; readonly blockers: readonly number[] }
  | { readonly ms: number };

export type Steps<T> = Generator<Pause, T, void>;

/** A row as a statement found it. */
export interface Found<T> {
  readonly row: StoredRow<T>;
  readonly version: Version<T>;
  readonly data: T;
}

/** An error that the server sends to its client. */
export class ServerError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

type Where<T> = (data: T) => boolean;
const ALWAYS = (): boolean => true;

export interface RunOptions {
  readonly store: Store;
  readonly tx: Transaction;
  /** Milliseconds since 1970 by the server's clock. */
  readonly clock: () => number;
  /** How long the statement does nothing at this point, for others to come in between. */
  readonly dawdleMs: () => number;
}

/**
 * One statement at work, at READ COMMITTED: it reads what its snapshot shows; a row that it locks
 * or writes it takes as it is now, waits for whoever has it, and then asks again whether it is
 * still wanted.
 */
export class Run {
  readonly tx: Transaction;
  snapshot: Snapshot;
  readonly #store: Store;
  readonly #clock: () => number;
  readonly #dawdleMs: () => number;

  constructor({ store, tx, clock, dawdleMs }: RunOptions) {
    this.#store = store;
    this.tx = tx;
    this.#clock = clock;
    this.#dawdleMs = dawdleMs;
    this.snapshot = store.takeSnapshot(tx);
  }

  /** NOW(): when the transaction began. */
  get now(): number {
    return this.tx.startedAt;
  }
  /** clock_timestamp(). */
  get clock(): number {
    return this.#clock();
  }
  get oldestRunning(): string {
    return String(this.#store.oldestRunning(this.snapshot));
  }
  get xid(): number {
    return this.#store.xidOf(this.tx);
  }

  /** What triggers see: everything that is committed by now, and what the statement wrote. */
  lookAgain(): void {
    this.#store.dropSnapshot(this.snapshot);
    this.tx.command += 1;
    this.snapshot = this.#store.takeSnapshot(this.tx);
  }

  nextNumber(): number {
    return this.#store.nextNumber();
  }
  get lastNumber(): number {
    return this.#store.lastNumber;
  }

  select<T>(table: Table<T>, where: Where<T> = ALWAYS): Found<T>[] {
    const found: Found<T>[] = [];
    for (const row of table.rows.values()) {
      const version = this.#store.see(row, this.snapshot, this.tx.xid);
      if (version !== undefined && where(version.data)) {
        found.push({ row, version, data: version.data });
      }
    }
    return found;
  }

  rows<T>(table: Table<T>, where: Where<T> = ALWAYS): T[] {
    return this.select(table, where).map(({ data }) => data);
  }

  exists<T>(table: Table<T>, where: Where<T>): boolean {
    return this.select(table, where).length > 0;
  }

  /** Undefined: it is gone, is not wanted any more, or is locked and `patience` is to skip it. */
  *lock<T>(
    found: Found<T>,
    mode: LockMode,
    where: Where<T> = ALWAYS,
    patience: "wait" | "skip" = "wait",
  ): Steps<Found<T> | undefined> {
    const { row } = found;
    const ms = this.#dawdleMs();
    if (ms > 0) yield { ms };
    for (;;) {
      const blockers = row.blockers(this.tx.xid, mode);
      if (blockers.length === 0) break;
      if (patience === "skip") return undefined;
      yield { row, blockers };
    }
    const { newest } = row;
    if (newest === undefined || newest.xmax !== 0) return undefined;
    const later = row.versions.slice(row.versions.indexOf(found.version) + 1);
    if (later.some((version) => version.isFresh)) return undefined; // Another row of the same key.
    row.lock(this.xid, mode);
    this.tx.touched.add(row);
    if (newest !== found.version && !where(newest.data)) return undefined;
    return { row, version: newest, data: newest.data };
  }

  /** Locks those of the rows that are free, or all of them, in the order given. */
  *lockAll<T>(
    some: readonly Found<T>[],
    mode: LockMode,
    where: Where<T>,
    patience: "wait" | "skip",
  ): Steps<Found<T>[]> {
    const locked: Found<T>[] = [];
    for (const found of some) {
      const one = yield* this.lock(found, mode, where, patience);
      if (one !== undefined) locked.push(one);
    }
    return locked;
  }

  /** UPDATE of one row. Undefined: it is gone, or not wanted any more. */
  *update<T>(
    table: Table<T>,
    found: Found<T>,
    change: (data: T) => Partial<T>,
    where: Where<T> = ALWAYS,
  ): Steps<T | undefined> {
    const held = yield* this.lock(found, "no-key-update", where);
    if (held === undefined) return undefined;
    const after = { ...held.data, ...change(held.data) };
    this.#write(table, held.row, after);
    return after;
  }

  /** DELETE of one row. */
  *remove<T>(table: Table<T>, found: Found<T>, where: Where<T> = ALWAYS): Steps<T | undefined> {
    const held = yield* this.lock(found, "update", where);
    if (held === undefined) return undefined;
    this.#write(table, held.row, undefined);
    return held.data;
  }

  /** UPDATE of all that the snapshot shows. */
  *updateAll<T>(table: Table<T>, where: Where<T>, change: (data: T) => Partial<T>): Steps<T[]> {
    const changed: T[] = [];
    for (const found of this.select(table, where)) {
      const after = yield* this.update(table, found, change, where);
      if (after !== undefined) changed.push(after);
    }
    return changed;
  }

  *removeAll<T>(table: Table<T>, where: Where<T>): Steps<T[]> {
    const removed: T[] = [];
    for (const found of this.select(table, where)) {
      const before = yield* this.remove(table, found, where);
      if (before !== undefined) removed.push(before);
    }
    return removed;
  }

  /** INSERT … ON CONFLICT: gives what is there already, committed, seen by the snapshot or not. */
  *insert<T>(table: Table<T>, data: T): Steps<Found<T> | undefined> {
    const row = table.at(table.keyOf(data));
    for (;;) {
      const { newest } = row;
      const isOthers = (xid: number): boolean =>
        xid !== 0 && xid !== this.tx.xid && this.#store.isRunning(xid);
      const writer = [newest?.xmin ?? 0, newest?.xmax ?? 0].find(isOthers);
      if (writer !== undefined) {
        yield { row, blockers: [writer] };
        continue;
      }
      if (newest === undefined || newest.xmax !== 0) break;
      return { row, version: newest, data: newest.data };
    }
    row.lock(this.xid, "update");
    this.tx.touched.add(row);
    this.#write(table, row, data);
    return undefined;
  }

  /** INSERT that must not find the key taken. */
  *insertNew<T>(table: Table<T>, data: T, constraint: string): Steps<void> {
    if ((yield* this.insert(table, data)) === undefined) return;
    const message = `duplicate key value violates unique constraint "${constraint}"`;
    throw new ServerError("23505", message);
  }

  /** A foreign key: the row that is named must be there, and stay. */
  *refer<T>(table: Table<T>, where: Where<T>): Steps<void> {
    for (const row of table.rows.values()) {
      const { newest } = row;
      // Not by the snapshot: as it is now, or will be when whoever changes it has ended.
      if (newest === undefined || !where(newest.data)) continue;
      const found = { row, version: newest, data: newest.data };
      if ((yield* this.lock(found, "key-share")) !== undefined) return;
    }
    throw new ServerError("23503", "insert or update violates foreign key constraint");
  }

  #write<T>(table: Table<T>, row: StoredRow<T>, after: T | undefined): void {
    const before = row.newest?.xmax === 0 ? row.newest.data : undefined;
    row.write(after, this.xid, this.tx.command);
    this.tx.changes.push({ table, before, after });
  }
}
