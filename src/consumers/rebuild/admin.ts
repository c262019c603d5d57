import { BoundedMap } from "../../base/bounded-map.ts";
import { type Clock, pause, systemClock } from "../../base/clock.ts";
import {
  ConflictError,
  InvalidInputError,
  NotFoundError,
  TimeoutError,
} from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { announceChange } from "../../cluster/sql/changes.ts";
import type { Connection, Database } from "../../db/database.ts";
import { isLockTimeout, sqlState } from "../../db/sqlstate.ts";
import { partitionNames } from "../consumer.ts";
import {
  deleteConsumer,
  forgetParkedAbove,
  listConsumers,
  readPartitionCount,
  recordAction,
} from "../sql/admin.ts";
import { type AlignContext, atOnePosition, lockPositions, type Sides } from "./align.ts";
import {
  type CompareOptions,
  type Comparison,
  compareTables,
  resolveCompareOptions,
} from "./compare.ts";
import { beforeName, beforeSchema, rebuildName, rebuiltConsumer, shadowSchema } from "./names.ts";
import { remember, type Sample } from "./progress.ts";
import {
  deleteRebuild,
  type Rebuild,
  type RebuildState,
  readRebuild,
  readRebuilds,
} from "./sql/rebuilds.ts";
import { analyzeTables, dropSchema, dropTables } from "./sql/shadow.ts";
import { readDeclaredTables } from "./sql/tables.ts";
import { type StartOptions, startRebuild } from "./start.ts";
import { describeRebuild, type RebuildStatus } from "./status.ts";
import { type SwapOptions, swapBack, swapTables } from "./swap.ts";

/** A consumer that declares its tables. */
export interface RebuildableStatus {
  readonly consumer: string;
  /** As it declares them. */
  readonly tables: readonly string[];
  readonly rebuild: RebuildStatus | undefined;
}

const REMEMBERED_MAX = 64;
/** A table that others read is asked for again: we wait a little each time, and let them by. */
const SWAP_ATTEMPTS = 5;
const SWAP_REST_MS = 200;

/**
 * Rebuilds of projections: start → (compare) → swap → forget, with cancel before the swap and roll
 * back after it. Every move is one transaction that locks the partitions concerned and compares the
 * state; see docs/adr/0016-rebuild.md.
 */
export class RebuildAdmin {
  readonly #db: Database;
  readonly #changesChannel: string;
  readonly #clock: Clock = systemClock;
  /** By id of the rebuild. */
  readonly #samples = new BoundedMap<string, Sample[]>(REMEMBERED_MAX);

  constructor(db: Database, changesChannel: string) {
    this.#db = db;
    this.#changesChannel = changesChannel;
  }

  /** Makes empty copies of the projection's tables, and has workers fill them. */
  async start(consumer: string, options: StartOptions = {}): Promise<RebuildStatus> {
    refuseRebuildName(consumer);
    refuseUnknown("rebuild", options, ["partitions", "reason"]);
    await this.#db.transaction(async (tx) => {
      await startRebuild(this.#db, tx, consumer, options);
      await announceChange(tx, this.#changesChannel);
    });
    return await this.status(consumer);
  }

  /** How far it is, and what is kept. */
  async status(consumer: string): Promise<RebuildStatus> {
    const rebuild = await this.#require(consumer);
    const rows = await listConsumers(this.#db);
    const names = partitionNames(rebuildName(consumer), rebuild.partitions);
    const own = rows.filter(({ name }) => names.includes(name));
    const slowest = own.map((row) => BigInt(row.last_position)).sort(ascending)[0];
    if (slowest !== undefined) {
      const newest = { atMs: rebuild.now.getTime(), position: slowest };
      const before = this.#samples.get(rebuild.id) ?? [];
      this.#samples.set(rebuild.id, remember(before, newest));
    }
    const samples = this.#samples.get(rebuild.id) ?? [];
    return describeRebuild(this.#db.names, { rebuild, rows, own, samples });
  }

  /** Every consumer that can be rebuilt, as its workers say, with its rebuild if it has one. */
  async list(): Promise<RebuildableStatus[]> {
    const declared = await readDeclaredTables(this.#db);
    const rebuilds = await readRebuilds(this.#db);
    const names = new Set([...declared, ...rebuilds].map(({ consumer }) => consumer));
    const listed: RebuildableStatus[] = [];
    for (const consumer of [...names].sort()) {
      const hasRebuild = rebuilds.some((one) => one.consumer === consumer);
      listed.push({
        consumer,
        tables: declared.find((one) => one.consumer === consumer)?.tables ?? [],
        rebuild: hasRebuild ? await this.#statusIfThere(consumer) : undefined,
      });
    }
    return listed;
  }

  /** Somebody may end it meanwhile. */
  async #statusIfThere(consumer: string): Promise<RebuildStatus | undefined> {
    try {
      return await this.status(consumer);
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  }

  /** Both sides at one position, row by row. Changes nothing. */
  async compare(consumer: string, options: CompareOptions = {}): Promise<Comparison> {
    const resolved = resolveCompareOptions(options);
    const rebuild = await this.#require(consumer, "building");
    const sides = await this.#sides(rebuild);
    return await compareTables(this.#alignContext, rebuild, sides, resolved);
  }

  /**
   * Puts the rebuilt tables in the place of the live ones, at once for all who read them, and keeps
   * those. Returns the position from which the projection goes on.
   */
  async swap(consumer: string, options: SwapOptions = {}): Promise<bigint> {
    refuseUnknown("swap", options, ["force"]);
    const rebuild = await this.#require(consumer, "building");
    const schema = shadowSchema(this.#db.names, rebuild.id);
    const copies = rebuild.tables.map(({ table }) => ({ schema, table }));
    // New tables without statistics would be read by bad plans.
    await this.#db.withConnection((connection) => analyzeTables(connection, copies));
    const sides = await this.#sides(rebuild);
    const swap = (tx: Connection): Promise<bigint> =>
      swapTables(this.#db, tx, { rebuild, sides, options });
    return await atOnePosition(this.#alignContext, sides, () => this.#patiently(swap));
  }

  /** Puts the tables from before the swap back, with the position that they had. */
  async rollBack(consumer: string): Promise<void> {
    const rebuild = await this.#require(consumer, "swapped");
    const { live } = await this.#sides(rebuild);
    await this.#patiently((tx) => swapBack(this.#db, tx, { rebuild, live }));
  }

  /** Ends a rebuild that was not swapped, or was rolled back, and drops the rebuilt tables. */
  async cancel(consumer: string): Promise<void> {
    const rebuild = await this.#require(consumer, "building", "rolled_back");
    const { rebuilt, live } = await this.#sides(rebuild);
    await this.#patiently(async (tx) => {
      if (rebuild.state === "building") await lockPositions(tx, rebuilt);
      await this.#drop(tx, rebuild, shadowSchema(this.#db.names, rebuild.id));
      await deleteConsumer(tx, rebuildName(consumer), rebuilt);
      for (const name of live) await forgetParkedAbove(tx, beforeName(consumer, name), -1n);
      await recordAction(tx, consumer, "rebuild cancel", { id: rebuild.id });
    });
  }

  /** Drops the tables from before the swap. There is no way back then. */
  async forget(consumer: string): Promise<void> {
    const rebuild = await this.#require(consumer, "swapped");
    const { live } = await this.#sides(rebuild);
    await this.#patiently(async (tx) => {
      await this.#drop(tx, rebuild, beforeSchema(this.#db.names, rebuild.id));
      for (const name of live) await forgetParkedAbove(tx, beforeName(consumer, name), -1n);
      await recordAction(tx, consumer, "rebuild forget", { id: rebuild.id });
    });
  }

  async #drop(tx: Connection, rebuild: Rebuild, schema: string): Promise<void> {
    if (!(await deleteRebuild(tx, rebuild))) {
      throw new ConflictError(`the rebuild of ${rebuild.consumer} was changed by somebody else`);
    }
    await dropTables(
      tx,
      rebuild.tables.map(({ table }) => ({ schema, table })),
    );
    await dropSchema(tx, schema);
  }

  /** Again if somebody holds a table, because whoever waits for one holds up all behind it. */
  async #patiently<T>(work: (tx: Connection) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#db.transaction(async (tx) => {
          const result = await work(tx);
          await announceChange(tx, this.#changesChannel);
          return result;
        });
      } catch (error) {
        const isPassing = isLockTimeout(error) || sqlState(causeOf(error)) === "40P01";
        if (!isPassing || attempt >= SWAP_ATTEMPTS) throw explained(error);
      }
      await pause(SWAP_REST_MS, this.#clock, new AbortController().signal);
    }
  }

  get #alignContext(): AlignContext {
    return { db: this.#db, changesChannel: this.#changesChannel, clock: this.#clock };
  }

  async #sides({ consumer, partitions }: Rebuild): Promise<Sides> {
    const count = await readPartitionCount(this.#db, consumer);
    if (count === undefined) throw new NotFoundError(`there is no consumer ${consumer}`);
    return {
      consumer,
      live: partitionNames(consumer, count),
      rebuilt: partitionNames(rebuildName(consumer), partitions),
    };
  }

  async #require(consumer: string, ...states: readonly RebuildState[]): Promise<Rebuild> {
    refuseRebuildName(consumer);
    const rebuild = await readRebuild(this.#db, consumer);
    if (rebuild === undefined) {
      throw new NotFoundError(
        `consumer ${JSON.stringify(consumer)} is not being rebuilt; ` +
          '"tidemill consumer rebuild start" begins',
      );
    }
    if (states.length > 0 && !states.includes(rebuild.state)) {
      throw new ConflictError(WRONG_STATE[rebuild.state](consumer));
    }
    return rebuild;
  }
}

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : Number(a > b));

/** What to do in a state in which that cannot be done. */
const WRONG_STATE: Readonly<Record<RebuildState, (consumer: string) => string>> = {
  building: (consumer) => `the rebuild of ${consumer} is not swapped in yet; swap it, or cancel it`,
  swapped: (consumer) =>
    `the rebuild of ${consumer} is swapped in; roll it back, or forget the tables from before`,
  rolled_back: (consumer) =>
    `the rebuild of ${consumer} was rolled back; cancel it, which drops the rebuilt tables`,
};

function refuseRebuildName(consumer: string): void {
  const whole = rebuiltConsumer(consumer) ?? consumer.replace(/\/\d+$/, "");
  if (whole === consumer) return;
  throw new InvalidInputError(`name the consumer, ${whole}, not ${consumer}`);
}

const causeOf = (error: unknown): unknown =>
  error instanceof Error && error.cause !== undefined ? error.cause : error;

/** Words for what the database refuses because of others. */
function explained(error: unknown): unknown {
  if (isLockTimeout(error)) {
    return new TimeoutError(
      "somebody held these tables all the time; end long transactions that use them, and try again",
      { cause: error },
    );
  }
  const cause = causeOf(error);
  if (sqlState(cause) !== "2BP01") return error;
  const detail = cause instanceof Error ? Reflect.get(cause, "detail") : undefined;
  return new ConflictError(
    `something else uses these tables: ${typeof detail === "string" ? detail : "drop it first"}`,
    { cause: error },
  );
}
