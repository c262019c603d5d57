import type pg from "pg";
import type { Scene } from "../src/checker/scene.ts";
import { concerns, partitionsOf } from "../src/consumers/consumer.ts";
import {
  type Consumer,
  type ConsumerTx,
  consumer,
  type PersistedEvent,
  queue,
  type WorkerOptions,
} from "../src/index.ts";
import type { ServerOptions } from "../src/server/index.ts";
import { Random } from "../test/support/random.ts";

/*
 * What the load is made of, for the processes that run it and for those that check it. Whatever a
 * handler or a consumer does is written in the transaction that counts, without a unique key, so
 * that what happens twice shows as two rows.
 */

export interface Work {
  /** Nobody else carries it. */
  readonly name: string;
  readonly act?: "throw" | "exit" | "hang" | "hog";
}

/** With which a process ends that a task or an event takes along. */
export const POISON_CODE = 7;

const BACKOFF = { kind: "fixed", baseSeconds: 0.2 } as const;

/** Most of the volume: nothing but the system itself. */
export const plain = queue<Work>("plain", { backoff: BACKOFF });
/** One after another of a key, completed in the transaction of their effect. */
export const orders = queue<Work>("orders", { backoff: BACKOFF, maxAttempts: 1_000 });
/** One after another of a key as well, and nothing but that: large bulks wait in packs. */
export const lines = queue<Work>("lines", { backoff: BACKOFF, maxAttempts: 3 });
export const LIMIT = 4;
/** Never more than so many at once, wherever. */
export const limited = queue<Work>("limited", {
  backoff: BACKOFF,
  limits: { concurrency: LIMIT },
});
/** Fails now and then, and some of it always. */
export const flaky = queue<Work>("flaky", { backoff: BACKOFF, maxAttempts: 3 });
/** What is enqueued and run through servers, by those who have no database. */
export const remote = queue<Work>("remote");
/** The same, one after another of a key. */
export const remoteLines = queue<Work>("remote-lines");
/** The same, and never more than so many at once, whichever server hands them out. */
export const remoteLimited = queue<Work>("remote-limited", { limits: { concurrency: LIMIT } });
/** What schedules enqueue. */
export const ticks = queue<null>("ticks", { backoff: BACKOFF });

export const SCHEDULE = "every-second";

/** What an event carries. The harm is done to whoever handles it with care, until it is cured. */
export interface Happening {
  /** Nobody else carries it. */
  readonly name: string;
  readonly harm?: "throw" | "hang" | "exit";
}

const HANDLE = `INSERT INTO chaos.handled (consumer, partition, line, position)
                VALUES ($1, $2, $3, $4)`;
const HANDLE_ALL = `
  INSERT INTO chaos.handled (consumer, partition, line, position)
  SELECT $1, partition, partition::text, position
    FROM unnest($2::int[], $3::bigint[]) WITH ORDINALITY AS one(partition, position, place)
   ORDER BY place`;

/** Which of its partitions handles the event. */
const partitionOf = (of: Consumer, event: PersistedEvent): number =>
  partitionsOf(of).findIndex((partition) => concerns(partition, event));

/** Writes all events of a batch at once, so that a million of them leave time for other work. */
function recorder(name: string, partitions: number): Consumer {
  const batches = new WeakMap<ConsumerTx, { partitions: number[]; positions: string[] }>();
  const made: Consumer = consumer(name, {
    partitions,
    handle: (event, { tx }) => {
      const batch = batches.get(tx) ?? { partitions: [], positions: [] };
      batches.set(tx, batch);
      batch.partitions.push(partitionOf(made, event));
      batch.positions.push(String(event.position));
    },
    beforeCommit: async ({ tx }) => {
      const batch = batches.get(tx);
      if (batch === undefined) return;
      await tx.query(HANDLE_ALL, [name, batch.partitions, batch.positions]);
    },
  });
  return made;
}

/** What it set aside is handled when it is told to go on. */
export const PARKING = "careful";

/** Is harmed by some events, which are set aside with their streams: only a stream is in order. */
function careful(random: Random): Consumer {
  const made: Consumer = consumer(PARKING, {
    partitions: 2,
    onFailure: "park",
    handle: async (event, { tx }) => {
      const { harm } = event.data as Happening;
      if (harm !== undefined && !(await isCured(tx))) await suffer(harm, random);
      const line = event.streamId;
      await tx.query(HANDLE, [PARKING, partitionOf(made, event), line, String(event.position)]);
    },
  });
  return made;
}

async function isCured(tx: ConsumerTx): Promise<boolean> {
  return (await tx.query("SELECT FROM chaos.cures")).rowCount !== 0;
}

async function suffer(harm: Happening["harm"], random: Random): Promise<void> {
  if (harm === "throw") throw new Error("as told");
  if (harm === "hang") await new Promise(() => {});
  // An event that always ends its process would end them all: who tries again may be lucky.
  if (random.chance(0.5)) process.exit(POISON_CODE);
}

/** From now on no event does harm: what was set aside may be handled. */
export async function cure(client: pg.ClientBase): Promise<void> {
  await client.query("INSERT INTO chaos.cures DEFAULT VALUES");
}

/** Of one process, whose seed decides which events take it along. */
export const consumersOf = (seed: number): readonly Consumer[] => [
  recorder("whole", 1),
  recorder("split", 4),
  careful(new Random(seed)),
];
/** As the system names partitions. */
export const PARTITION_NAME = /^(.*)\/(\d+)$/;

export const LEASE_SECONDS = 3;
/** As many as there are while nothing is broken. */
export const WORKERS = 4;

/** What the rules have to know of it. The schedule fires every second, and catches up. */
export const SCENE: Scene = {
  consumers: consumersOf(0).map(({ name }) => ({
    name,
    handles: () => true,
    setsAside: name === PARKING,
  })),
  isNamed: (name) => name !== ticks.name,
  hasEffect: (name) => name === orders.name,
  isOrderedByEnd: (name) => name === lines.name || name === remoteLines.name,
  keySpaceOf: (name) => name,
  begins: [plain, orders, lines, limited, flaky, remote, remoteLines, remoteLimited].map(
    ({ name }) => name,
  ),
  leaseSeconds: LEASE_SECONDS,
  limits: { [limited.name]: LIMIT, [remoteLimited.name]: LIMIT },
  tickMs: 1_000,
};

const DRAIN_MS = 2_000;
/** Who is told to stop has ended by then. */
export const STOP_MS = DRAIN_MS + 2_000;

/** Everything happens within seconds, and a busy machine is no death. */
export const WORKER: WorkerOptions = {
  heartbeatInterval: 300,
  heartbeatTimeout: 2_000,
  rebalanceInterval: 300,
  dispatcherStrategy: "notify",
  batchTimeout: 3_000,
  maxConsecutiveFailures: 3,
  leaseSeconds: LEASE_SECONDS,
  drainTimeout: DRAIN_MS,
  concurrency: 20,
};

/** Tries to lead ten times as often as the others, and leads when nobody does. */
export const EAGER = { rebalanceInterval: 30 } as const satisfies WorkerOptions;

/** A session means nothing behind a pooler that lends connections for one transaction each. */
export const BEHIND_POOLER = {
  leaderStrategy: "lease",
  dispatcherStrategy: "poll",
} as const satisfies WorkerOptions;

export const PRODUCER_TOKEN = "token-of-a-producer-in-chaos";
export const WORKER_TOKEN = "token-of-a-worker-in-chaos";

export const SERVER: ServerOptions = {
  host: "127.0.0.1",
  producer: { port: 0 },
  worker: { port: 0 },
  http: false,
  metrics: false,
  auth: {
    staticTokens: [
      { token: PRODUCER_TOKEN, tenant: "remote", scopes: ["producer"] },
      { token: WORKER_TOKEN, tenant: "remote", scopes: ["worker"] },
    ],
  },
  cluster: {
    heartbeatInterval: 300,
    heartbeatTimeout: 2_000,
    rebalanceInterval: 300,
  },
  leaseSeconds: LEASE_SECONDS,
  graceSeconds: 1,
  drainSeconds: DRAIN_MS / 1_000,
};

/** A server that falls silent is given up before its leases end. */
export const CLIENT = {
  connectSeconds: 3,
  reconnectSecondsMax: 0.5,
  keepaliveSeconds: 1,
  keepaliveTimeoutSeconds: 1,
} as const;
