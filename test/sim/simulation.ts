import type { Logger } from "../../src/base/log.ts";
import { consumer } from "../../src/consumers/consumer.ts";
import { ClusterChecker, Violation } from "./checker.ts";
import { Cluster } from "./cluster.ts";
import { Faults } from "./faults.ts";
import { makeHandler } from "./handlers.ts";
import { LANES, Producer } from "./producer.ts";
import { TaskChecker } from "./task-checker.ts";
import type { Timeline } from "./timeline.ts";

const CONSUMERS = ["a", "b", "c", "d", "e"];
const consumers = CONSUMERS.map((name) => consumer(name, { handle: async () => {} }));
const LEASE_SECONDS = 6;
const FAULTS_MS = 30_000;
/** By then all is done and everything belongs to those who live. */
const QUIET_MS = 60_000;
const LOOK_MS = 2_500;
/** One fault in so many milliseconds, on average. */
const FAULT_EVERY_MS = 1_200;

export interface Simulated {
  readonly cluster: Cluster;
  readonly tasks: TaskChecker;
  readonly terms: number;
}

/** Half a minute of work in which things go wrong, and then peace in which all must be done. */
export async function simulate(seed: number, log: string[]): Promise<Simulated> {
  const leaseMs = LEASE_SECONDS * 1_000;
  const cluster: Cluster = new Cluster(seed, ({ process }, id) => ({
    logger: loggerOf(id, log, cluster.timeline),
    consumers,
    handlers: [
      makeHandler({
        timeline: cluster.timeline,
        random: cluster.random,
        process,
        leaseMs,
        onCall: (call) => tasks.called(call),
      }),
    ],
    concurrency: 3,
    leaseSeconds: LEASE_SECONDS,
    heartbeatInterval: 1_000,
    heartbeatTimeout: 4_000,
    rebalanceInterval: 1_000,
    drainTimeout: 2_000,
    dispatcherStrategy: seed % 4 < 2 ? "notify" : "poll",
    leaderStrategy: seed % 2 === 0 ? "advisory" : "lease",
  }));
  const { scene, timeline, random, members } = cluster;
  const leadership = new ClusterChecker(scene);
  const tasks = new TaskChecker(scene);
  scene.write((put) => {
    for (const consumerName of CONSUMERS) {
      put(scene.tables.assignments, { consumerName, workerId: null });
    }
    for (const lane of LANES) put(scene.tables.lanes, lane);
  });
  scene.server.watcher = {
    onCommit: (tx) => {
      leadership.onCommit(tx);
      tasks.onCommit(tx);
    },
    onLost: (txs) => tasks.onLost(txs),
  };
  for (let count = 0; count < 3; count += 1) cluster.join();
  const producers = [
    ["k1", "k2", "k3"],
    ["k4", "k5"],
  ].map((keys) => new Producer(scene.server, random, { keys, everyMs: 800 }));
  const faults = new Faults(cluster, { leaseMs, log });
  try {
    faults.start(FAULT_EVERY_MS);
    await timeline.pass(FAULTS_MS);
    for (const producer of producers) producer.stop();
    faults.stop();
    const check = (): void => {
      const live = [...members].map(({ worker }) => worker.id);
      leadership.checkQuiet(live);
      tasks.checkQuiet(live);
    };
    for (let passedMs = 0; passedMs < QUIET_MS && !isFine(check); passedMs += LOOK_MS) {
      await timeline.pass(LOOK_MS);
    }
    check();
  } finally {
    cluster.end();
  }
  return { cluster, tasks, terms: leadership.terms };
}

function isFine(check: () => void): boolean {
  try {
    check();
    return true;
  } catch (error) {
    if (error instanceof Violation) return false;
    throw error;
  }
}

/** What the workers say goes between the faults. */
function loggerOf(id: string, log: string[], timeline: Timeline): Logger {
  const ignore = (): void => {};
  const line = (fields: object, message: string): void => {
    const at = Math.round(timeline.now);
    log.push(`${at} ${id.slice(0, 8)} ${message} ${JSON.stringify(fields)}`);
  };
  return { debug: ignore, info: line, warn: line, error: line };
}
