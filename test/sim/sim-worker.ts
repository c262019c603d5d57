import { silentLogger } from "../../src/base/log.ts";
import { Supervisor } from "../../src/base/supervisor.ts";
import { ConsumerMetrics } from "../../src/consumers/metrics.ts";
import { resolvePartitioning } from "../../src/db/migrations.ts";
import { DeliveryMetrics } from "../../src/delivery/metrics.ts";
import { QueueDirectory } from "../../src/tasks/directory.ts";
import { TaskMetrics } from "../../src/tasks/metrics.ts";
import { Assembly, CONTROL_CONNECTIONS } from "../../src/worker/assembly.ts";
import { changesChannel, leaderKey, tasksChannel } from "../../src/worker/connect.ts";
import { resolveWorkerOptions, type WorkerOptions } from "../../src/worker/options.ts";
import { type Parts, servicesOf } from "../../src/worker/parts.ts";
import type { WorkerContext } from "../../src/worker/worker-context.ts";
import type { Random } from "../support/random.ts";
import { NAMES, type Place, SimDatabase } from "./sim-database.ts";

export const CHANGES = changesChannel(NAMES);
export const TASKS = tasksChannel(NAMES);
/** The log and its consumers, and schedules, are not simulated. */
const LEFT_OUT = ["reader", "consumers", "scheduler"];

/** One worker as src/worker assembles it, in a process of its own, on the simulated database. */
export class SimWorker {
  readonly id: string;
  readonly place: Place;
  readonly #parts: Parts;
  readonly #database: SimDatabase;
  #supervisor: Supervisor | undefined;
  #isStopping = false;

  constructor(id: string, place: Place, random: Random, options: WorkerOptions) {
    this.id = id;
    this.place = place;
    this.#database = new SimDatabase(place, CONTROL_CONNECTIONS);
    const member = {
      id,
      clock: place.process.clock,
      random: () => random.next(),
      logger: options.logger ?? silentLogger,
      assigned: () => [],
    };
    const resolved = resolveWorkerOptions(options, undefined);
    const assembly = new Assembly(contextOf(this.#database), resolved, member);
    this.#parts = assembly.build({ control: this.#database, batches: this.#database });
  }

  /** Undefined while another worker leads. */
  get term(): bigint | undefined {
    return this.#parts.leader.term;
  }

  /** As Worker does; resolves when it has ended, for whatever reason. */
  async run(): Promise<void> {
    const { listener, election, tasks, registry } = this.#parts;
    try {
      await listener?.open();
      await election.open();
      await tasks?.register();
      await registry.register();
    } catch {
      await election.release().catch(() => {});
      await listener?.close();
      await registry.deregister().catch(() => {});
      return;
    }
    const services = servicesOf(this.#parts)
      .flat()
      .filter(({ name }) => !LEFT_OUT.includes(name));
    this.#supervisor = new Supervisor(services);
    if (this.#isStopping) void this.#stop();
    await this.#supervisor.finished.catch(() => {});
    await registry.deregister().catch(() => {});
    await this.#database.close();
  }

  /** In peace. */
  stop(): void {
    this.#isStopping = true;
    if (this.#supervisor !== undefined) void this.#stop();
  }

  async #stop(): Promise<void> {
    await this.#parts.registry.drain().catch(() => {});
    await this.#supervisor?.stop().catch(() => {});
  }
}

function contextOf(database: SimDatabase): WorkerContext {
  return {
    openDatabase: (poolSize) => database.another(poolSize),
    directUrl: database.options.url,
    changesChannel: CHANGES,
    notifyChannel: "worker_events",
    announces: true,
    leaderKey: leaderKey(NAMES),
    sequence: "events",
    partitioning: resolvePartitioning(),
    compat: undefined,
    logger: silentLogger,
    metrics: new ConsumerMetrics(),
    tasks: {
      directory: new QueueDirectory(database),
      metrics: new TaskMetrics(),
      channel: TASKS,
      sequence: "task_numbers",
      isPooled: false,
    },
    deliveryMetrics: new DeliveryMetrics(),
    onEnd: () => {},
  };
}
