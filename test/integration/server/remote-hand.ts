import { expect } from "vitest";
import { type Queue, queue } from "../../../src/index.ts";
import type {
  Act,
  ActAck,
  LeaseToken,
  Task,
  ToWorker,
  WorkerHello,
} from "../../../src/wire/generated/tidemill/v1/worker.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type TidemillWorker, tidemillWorker } from "../../support/stream-client.ts";
import { ACME_WORKER, type Scene } from "./scene.ts";

type Case = NonNullable<ToWorker["message"]>["$case"];
type Value<C extends Case> = Extract<NonNullable<ToWorker["message"]>, { $case: C }>["value"];
type GivenAct = NonNullable<Act["act"]>;

/** Whose the token of the hello is. */
export const tenant = "acme";

/**
 * A server at which tasks are handed out, and lost soon: not so soon that whoever comes back at
 * once is too late on a busy machine.
 */
export const HANDED_OUT = {
  worker: { port: 0 },
  graceSeconds: 1,
  leaseSeconds: 3,
  drainSeconds: 5,
} as const;

let queues = 0;
/** Each test has a queue of its own. */
export function newQueue(options: { readonly timeoutSeconds?: number } = {}): Queue {
  queues += 1;
  const backoff = { kind: "fixed", baseSeconds: 0.01 } as const;
  return queue(`queue-${queues}`, { backoff, ...options });
}

const HELLO: WorkerHello = {
  token: ACME_WORKER,
  workerId: "hand-1",
  client: undefined,
  queues: [],
  concurrency: 10,
  leaseSeconds: 0,
  host: "here",
  held: [],
};

/** One worker of Tidemill's own stream, which says what it is told to. */
export class RemoteHand {
  readonly stream: TidemillWorker;
  #requests = 0n;

  constructor(port: number) {
    this.stream = tidemillWorker(`127.0.0.1:${port}`);
    onCleanup(() => Promise.resolve(this.stream.close()));
  }

  static at({ server }: Pick<Scene, "server">): RemoteHand {
    return new RemoteHand(server.address("worker").port);
  }

  /** Says hello, and waits to be known or to be told off. */
  async hello(hello: Partial<WorkerHello> = {}): Promise<this> {
    this.stream.send({ message: { $case: "hello", value: { ...HELLO, ...hello } } });
    await this.stream.until(1);
    return this;
  }

  ready(count: number, queues: string[] = []): bigint {
    this.#requests += 1n;
    const value = { requestId: this.#requests, count, queues };
    this.stream.send({ message: { $case: "ready", value } });
    return this.#requests;
  }

  leave(): void {
    this.stream.send({ message: { $case: "leave", value: {} } });
  }

  all<C extends Case>($case: C): Value<C>[] {
    return this.stream.received.flatMap(({ message }) =>
      message?.$case === $case ? [message.value as Value<C>] : [],
    );
  }

  get tasks(): Task[] {
    return this.all("tasks").flatMap(({ tasks }) => tasks);
  }

  async gets(count: number): Promise<Task[]> {
    return await eventually(() => {
      expect(this.tasks).toHaveLength(count);
      return this.tasks;
    });
  }

  /** Of one task. */
  async get(): Promise<Task> {
    const before = this.tasks.length;
    this.ready(1);
    const task = (await this.gets(before + 1)).at(-1);
    if (task === undefined) throw new Error("no task came");
    return task;
  }

  send(acts: readonly (readonly [Task | LeaseToken, GivenAct])[]): bigint {
    this.#requests += 1n;
    const given = acts.map(([on, act]) => ({ token: tokenOf(on), act }));
    const value = { requestId: this.#requests, acts: given };
    this.stream.send({ message: { $case: "acts", value } });
    return this.#requests;
  }

  async acks(requestId: bigint): Promise<ActAck[]> {
    return await eventually(() => {
      const found = this.all("actsAck").find((ack) => ack.requestId === requestId);
      expect(found).toBeDefined();
      return found?.acks ?? [];
    });
  }

  /** Acts, and gives how each was answered: its state, or the code of its failure. */
  async act(...acts: readonly (readonly [Task | LeaseToken, GivenAct])[]): Promise<string[]> {
    const acks = await this.acks(this.send(acts));
    return acks.map(({ failure, state }) => failure?.code ?? state);
  }

  async complete(task: Task | LeaseToken): Promise<string> {
    return (await this.act([task, complete()]))[0] ?? "";
  }
}

export const tokenOf = (on: Task | LeaseToken): LeaseToken => {
  const token = "lease" in on ? on.lease?.token : on;
  if (token === undefined) throw new Error("the task came without a token");
  return token;
};

export const complete = (result?: unknown): GivenAct => ({
  $case: "complete",
  value: result === undefined ? {} : { resultJson: Buffer.from(JSON.stringify(result)) },
});
export const fail = (reason: string, isFinal = false): GivenAct => ({
  $case: "fail",
  value: { reason, isFinal, isInvalidPayload: false },
});
export const nack = (delaySeconds: number, reason = "busy"): GivenAct => ({
  $case: "nack",
  value: { delaySeconds, reason },
});
export const abandon = (): GivenAct => ({ $case: "abandon", value: {} });
export const extend = (seconds = 0): GivenAct => ({ $case: "extend", value: { seconds } });
export const progress = (value: unknown): GivenAct => ({
  $case: "progress",
  value: { valueJson: Buffer.from(JSON.stringify(value)) },
});
