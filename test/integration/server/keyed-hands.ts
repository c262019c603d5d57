import type { Task } from "../../../src/wire/generated/codeq/worker.ts";
import { onCleanup } from "../../support/database.ts";
import { type CodeqWorker, codeqWorker } from "../../support/stream-client.ts";

/** What a keyed task of these tests carries: CodeQ's messages have no key. */
export interface Step {
  readonly key: string;
  readonly n: number;
}

export interface Start extends Step {
  readonly tenant: string;
  readonly by: string;
  readonly attempt: number;
}

/** All starts of all workers, and which came while another task of the same key ran. */
export class Diary {
  readonly starts: Start[] = [];
  readonly faults: string[] = [];
  readonly #running = new Map<string, Start>();

  start(one: Start): void {
    const id = `${one.tenant}/${one.key}`;
    const other = this.#running.get(id);
    if (other !== undefined) this.faults.push(`${id}: ${one.n} beside ${other.n}`);
    this.#running.set(id, one);
    this.starts.push(one);
  }

  /** Said before the server can know of it, and so before the next may start. */
  end({ tenant, key }: Start): void {
    this.#running.delete(`${tenant}/${key}`);
  }

  of(tenant: string): Start[] {
    return this.starts.filter((one) => one.tenant === tenant);
  }

  /** By key: the numbers in the order of their starts, a repeated one once. */
  orderOf(tenant: string): Record<string, number[]> {
    const order: Record<string, number[]> = {};
    for (const { key, n } of this.of(tenant)) {
      const line = (order[key] ??= []);
      if (line.at(-1) !== n) line.push(n);
    }
    return order;
  }
}

export interface HandOptions {
  readonly url: string;
  readonly token: string;
  readonly tenant: string;
  readonly by: string;
  readonly diary: Diary;
  /** How a task ends. Defaults to completed. */
  readonly fails?: (start: Start) => boolean;
  readonly commands?: readonly string[];
}

/** A worker on a stream that orders, runs and orders again. */
export class KeyedHand {
  readonly stream: CodeqWorker;
  readonly #options: HandOptions;

  constructor(options: HandOptions) {
    this.#options = options;
    this.stream = codeqWorker(options.url);
    onCleanup(() => Promise.resolve(this.stream.close()));
    this.stream.call.on("data", ({ event }) => {
      if (event?.$case === "helloAck") this.#ready();
      if (event?.$case === "task" && event.value.task !== undefined) this.#run([event.value.task]);
      if (event?.$case === "taskBatch") this.#run(event.value.tasks);
    });
    const value = { token: options.token, workerId: options.by };
    this.stream.send({ event: { $case: "hello", value } });
  }

  #ready(): void {
    const { commands = ["mails"] } = this.#options;
    const value = { commands: [...commands], leaseSeconds: 0, count: 4 };
    this.stream.send({ event: { $case: "ready", value } });
  }

  #run(tasks: readonly Task[]): void {
    const { diary, tenant, by, fails = () => false } = this.#options;
    const started = tasks.map((task) => {
      const step = JSON.parse(Buffer.from(task.payload).toString()) as Step;
      const start = { ...step, tenant, by, attempt: task.attempts };
      diary.start(start);
      return { id: task.id, start };
    });
    setImmediate(() => {
      for (const { id, start } of started) {
        const isFailed = fails(start);
        const status = isFailed ? "FAILED" : "COMPLETED";
        const said = { taskId: id, status, resultJson: Buffer.alloc(0) };
        diary.end(start);
        const value = { ...said, error: isFailed ? "not yet" : "" };
        this.stream.send({ event: { $case: "result", value } });
      }
      this.#ready();
    });
  }
}
