import type pg from "pg";
import { expect } from "vitest";
import {
  type ConnectOptions,
  type Consumer,
  consumer,
  type Logger,
  Tidemill,
  type Worker,
} from "../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";
import { salsaAppend, steadily } from "./salsa-appender.ts";
import type { SalsaConsumer } from "./salsa-consumer.ts";
import { SALSA_LEADER_KEY, SalsaMember } from "./salsa-member.ts";
import {
  HANDLED_DDL,
  headsTable,
  SALSA_WORKER_DDL,
  type SalsaFamily,
  salsaStoreDdl,
} from "./salsa-schema.ts";

export type LeaderStrategy = "advisory" | "lease";

/** Our names for the tables that are there already; what only we have goes to schema tidemill. */
export function salsaConnectOptions(family: SalsaFamily): ConnectOptions {
  return {
    compat: "eventsalsa",
    schema: "tidemill",
    columnFamily: family,
    tables: {
      events: "public.events",
      streamHeads: `public.${headsTable(family)}`,
      workerNodes: "public.worker_nodes",
      consumerAssignments: "public.consumer_assignments",
      consumerCheckpoints: "public.consumer_checkpoints",
      consumerGapSkips: "public.consumer_gap_skips",
      workerLeaderElection: "public.worker_leader_election",
    },
  };
}

/** A database made by the other program alone, with its events and a rolled back append. */
export async function salsaDatabase(family: SalsaFamily): Promise<TestDatabase> {
  const database = await testDatabase({ migrated: false });
  await database.pool.query(salsaStoreDdl(family) + SALSA_WORKER_DDL);
  const session = await database.session();
  const stream = { streamType: "Invoice", streamId: "before-us" };
  await salsaAppend(session, family, { ...stream, count: 3 });
  await salsaAppend(session, family, { ...stream, count: 2, end: "rollback" });
  await salsaAppend(session, family, { ...stream, count: 2 });
  return database;
}

/** Byte order is neither that of JavaScript's strings, nor of a language, nor without case. */
export const CONSUMERS: readonly SalsaConsumer[] = [
  { name: "Zeta" },
  { name: "alpha" },
  { name: "orders-10" },
  { name: "orders-9", types: ["Invoice"] },
  { name: "éclair" },
  { name: "mail-\u{FF5E}" },
  { name: "mail-\u{1F4E8}" },
];

const NAMES = CONSUMERS.map(({ name }) => name);

/** A worker of ours, told apart from the others by what it logs. */
export interface OurMember {
  readonly kind: "tidemill";
  readonly id: string;
  readonly worker: Worker;
  readonly isLeader: boolean;
  /** Looks at the assignments that it made as leader, whether or not they changed anything. */
  readonly rebalances: number;
  readonly failure: unknown;
  stop(): Promise<void>;
}

export type Member = SalsaMember | OurMember;

export type BeforeEvent = (consumer: string) => Promise<void>;

export interface AssignmentWrite {
  readonly consumer: string;
  readonly before: string | null;
  readonly after: string | null;
  readonly writer: string;
}

const WRITES = `
  CREATE TABLE assignment_writes (
    id BIGINT GENERATED ALWAYS AS IDENTITY, consumer TEXT, before TEXT, after TEXT, writer TEXT);
  CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.assignment_writes (consumer, before, after, writer)
    VALUES (new.consumer_name, old.worker_id, new.worker_id, current_setting('application_name'));
    RETURN NULL;
  END $$;
  CREATE TRIGGER note_write AFTER UPDATE ON consumer_assignments
    FOR EACH ROW EXECUTE FUNCTION note_write();`;

// Long enough that no append of these tests stays open longer: the model, like the source, loses
// events whose append does.
const STALE_GAP_MS = 750;
/** Looking costs the members their time too. */
const CALM = { everyMs: 60 };
const HEARTBEAT_MS = 200;
// Nobody dies here without a word, so that a slow machine may not look like a death.
const HEARTBEAT_TIMEOUT_MS = 10_000;

/** A cluster of both kinds on the tables of one of them. */
export class MixedCluster {
  readonly database: TestDatabase;
  readonly family: SalsaFamily;
  readonly strategy: LeaderStrategy;
  readonly members = new Set<Member>();

  private constructor(database: TestDatabase, family: SalsaFamily, strategy: LeaderStrategy) {
    this.database = database;
    this.family = family;
    this.strategy = strategy;
  }

  static async create(family: SalsaFamily, strategy: LeaderStrategy): Promise<MixedCluster> {
    const database = await salsaDatabase(family);
    await database.pool.query(HANDLED_DDL + WRITES);
    return new MixedCluster(database, family, strategy);
  }

  get pool(): pg.Pool {
    return this.database.pool;
  }

  async migrate(): Promise<void> {
    await Tidemill.migrate(this.database.url, salsaConnectOptions(this.family));
  }

  async connect(): Promise<Tidemill> {
    return await this.database.connect(salsaConnectOptions(this.family));
  }

  async startSalsa(options: { readonly stands?: boolean } = {}): Promise<SalsaMember> {
    const member = await SalsaMember.start(this.database.url, CONSUMERS, {
      family: this.family,
      leader: this.strategy,
      batchSize: 50,
      batchPauseMs: 10,
      pollMs: 50,
      maxPollMs: 200,
      dispatcherMs: 50,
      heartbeatMs: HEARTBEAT_MS,
      heartbeatTimeoutMs: HEARTBEAT_TIMEOUT_MS,
      rebalanceMs: 50,
      syncFloorMs: 300,
      staleGapMs: STALE_GAP_MS,
      ...options,
    });
    onCleanup(() => member.stop());
    this.members.add(member);
    return member;
  }

  /** @param before runs in the batch, before an event of the consumer is handled */
  async startOurs(before: BeforeEvent = async () => {}): Promise<OurMember> {
    const mill = await this.connect();
    const seen = { rebalances: 0, failure: undefined as unknown };
    const worker = mill.worker({
      consumers: CONSUMERS.map((one) => toOurs(one, before)),
      leaderStrategy: this.strategy,
      batchSize: 50,
      batchPause: 10,
      pollInterval: 50,
      maxPollInterval: 200,
      dispatcherInterval: 50,
      heartbeatInterval: HEARTBEAT_MS,
      heartbeatTimeout: HEARTBEAT_TIMEOUT_MS,
      rebalanceInterval: 200,
      logger: countRebalances(() => {
        seen.rebalances += 1;
      }),
    });
    const finished = worker.start().catch((error: unknown) => {
      seen.failure = error;
    });
    const member: OurMember = {
      kind: "tidemill",
      id: worker.id,
      worker,
      get isLeader() {
        return worker.isLeader;
      },
      get rebalances() {
        return seen.rebalances;
      },
      get failure() {
        return seen.failure;
      },
      stop: async () => {
        await worker.stop();
        await finished;
      },
    };
    this.members.add(member);
    return member;
  }

  async stop(member: Member): Promise<void> {
    await member.stop();
    this.members.delete(member);
  }

  /** Waits until the table is what every member must compute for those who are there. */
  async eventuallyBalanced(): Promise<void> {
    const expected = idealTable(NAMES, [...this.members]);
    await eventually(async () => expect(await this.readTable()).toEqual(expected), CALM);
  }

  async readTable(): Promise<Record<string, string | null>> {
    const { rows } = await this.pool.query<{ consumer_name: string; worker_id: string | null }>(
      "SELECT consumer_name, worker_id FROM public.consumer_assignments",
    );
    return Object.fromEntries(rows.map((row) => [row.consumer_name, row.worker_id]));
  }

  /** Waits until each owner, or this one, has handled something appended after this call. */
  async eventuallyServed(only?: Member): Promise<void> {
    const latest = await this.pool.query<{ latest: string }>(
      "SELECT max(global_position) AS latest FROM public.events",
    );
    const table = Object.entries(await this.readTable());
    const owners = Object.fromEntries(table.filter(([, id]) => id === (only?.id ?? id)));
    await eventually(async () => {
      const { rows } = await this.pool.query<{ consumer: string; worker: string }>(
        `SELECT DISTINCT ON (consumer) consumer, worker FROM handled
          WHERE position > $1 AND consumer = ANY($2) ORDER BY consumer, id DESC`,
        [latest.rows[0]!.latest, Object.keys(owners)],
      );
      expect(Object.fromEntries(rows.map((row) => [row.consumer, row.worker]))).toEqual(owners);
    }, CALM);
  }

  /** Every UPDATE of an assignment so far, in order, also one that changed nothing. */
  async readWrites(): Promise<AssignmentWrite[]> {
    const { rows } = await this.pool.query<AssignmentWrite>(
      "SELECT consumer, before, after, writer FROM assignment_writes ORDER BY id",
    );
    return rows;
  }

  /** Waits until the member, and nobody else, leads by what the database says too. */
  async eventuallyLeads(...candidates: Member[]): Promise<Member> {
    return await eventually(async () => {
      const leaders = [...this.members].filter((one) => one.isLeader);
      expect(leaders).toHaveLength(1);
      const [leader] = leaders;
      expect(candidates.map((one) => one.id)).toContain(leader!.id);
      if (this.strategy === "advisory") await this.#expectLock(leader!);
      else await this.#expectLease(leader!);
      return leader!;
    });
  }

  async #expectLock({ kind }: Member): Promise<void> {
    const { rows } = await this.pool.query(
      `SELECT lock.classid::int, lock.objid::int, lock.objsubid, activity.application_name
         FROM pg_locks AS lock JOIN pg_stat_activity AS activity USING (pid)
        WHERE lock.locktype = 'advisory' AND lock.granted
          AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    const key = { classid: 1_685_110, objid: 407_961_287, objsubid: 1 };
    expect(rows).toEqual([{ ...key, application_name: `${kind} leader` }]);
  }

  async #expectLease({ id }: Member): Promise<void> {
    const { rows } = await this.pool.query(
      `SELECT lease_key, leader_id, expires_at > NOW() AS is_live,
              extract(epoch FROM expires_at - updated_at)::float8 * 1000 AS ms
         FROM public.worker_leader_election`,
    );
    expect(rows).toEqual([
      { lease_key: "leader", leader_id: id, is_live: true, ms: HEARTBEAT_TIMEOUT_MS },
    ]);
  }

  /** Takes the lead from whoever has it, so that this one gets it while nobody comes or goes. */
  async handLeadTo(member: SalsaMember): Promise<void> {
    member.stand();
    if (this.strategy === "lease") {
      await this.pool.query(
        `UPDATE public.worker_leader_election
            SET leader_id = $1, expires_at = NOW() + INTERVAL '10 seconds', updated_at = NOW()`,
        [member.id],
      );
    }
    await eventually(async () => {
      if (this.strategy === "advisory" && !member.isLeader) await this.#endLeaderSession();
      // It tries every 50 ms, the one that lost it at the earliest after 100.
      await eventually(() => expect(member.isLeader).toBe(true), { timeoutMs: 300 });
    });
  }

  async #endLeaderSession(): Promise<void> {
    await this.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND classid = 1685110
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
  }

  /** Waits until the leader has looked often enough to have written, had it wanted to. */
  async eventuallyLooked(leader: Member): Promise<void> {
    const before = leader.rebalances;
    await eventually(() => expect(leader.rebalances).toBeGreaterThan(before + 3));
  }
}

/** What the source's algorithm gives: names by bytes, workers by id, one after the other. */
export function idealTable(
  consumers: readonly string[],
  workers: readonly { readonly id: string }[],
): Record<string, string> {
  const ids = workers.map(({ id }) => id).sort();
  const names = consumers.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return Object.fromEntries(names.map((name, index) => [name, ids[index % ids.length]!]));
}

function toOurs({ name, types }: SalsaConsumer, before: BeforeEvent): Consumer {
  return consumer(name, {
    ...(types === undefined ? {} : { aggregateTypes: types }),
    handle: async (event, { tx, workerId }) => {
      await before(name);
      await tx.query(
        "INSERT INTO handled (consumer, position, worker, member) VALUES ($1, $2, $3, 'tidemill')",
        [name, String(event.position), workerId],
      );
    },
  });
}

function countRebalances(onRebalance: () => void): Logger {
  const note = (_: object, message: string): void => {
    if (message === "rebalance skipped" || message === "consumer assignments updated") {
      onRebalance();
    }
  };
  return { debug: note, info: note, warn: note, error: note };
}

export interface Traffic {
  /** Every stream type in turn, and now and then a transaction that is rolled back. */
  stop(): Promise<void>;
}

const TYPES = ["Order", "Invoice", "Parcel"];
const EVERY_MS = 80;
/** Each costs whoever is owned by the model STALE_GAP_MS, so they must not come faster. */
const ROLLBACK_EVERY = 30;

/** The statements of the other program's store, in each order its versions have used. */
export async function salsaTraffic({ database, family }: MixedCluster): Promise<Traffic> {
  const session = await database.session();
  const orders = family === "stream" ? ["head-first"] : ["head-first", "events-first"];
  return steadily(EVERY_MS, async (turn) => {
    await salsaAppend(session, family, {
      streamType: TYPES[turn % TYPES.length]!,
      streamId: `salsa-${turn % 7}`,
      count: 1 + (turn % 3),
      order: orders[turn % orders.length] as "head-first" | "events-first",
      end: turn % ROLLBACK_EVERY === 5 ? "rollback" : "commit",
    });
  });
}

export async function ourTraffic(cluster: MixedCluster): Promise<Traffic> {
  const mill = await cluster.connect();
  return steadily(EVERY_MS, async (turn) => {
    const stream = { type: TYPES[turn % TYPES.length]!, id: `ours-${turn % 7}` };
    const events = Array.from({ length: 1 + (turn % 3) }, () => ({ type: "Changed" }));
    if (turn % ROLLBACK_EVERY !== 20) {
      await mill.append(stream, events);
      return;
    }
    const undone = mill.transaction(async (tx) => {
      await mill.append(stream, events, { tx });
      throw new Error("rolled back on purpose");
    });
    await expect(undone).rejects.toThrow("on purpose");
  });
}

/** SALSA_LEADER_KEY held by nobody who would use it: then the test alone writes assignments. */
export async function withoutLeader({ database }: MixedCluster): Promise<void> {
  const session = await database.session();
  await session.query("SELECT pg_advisory_lock($1)", [SALSA_LEADER_KEY]);
}
