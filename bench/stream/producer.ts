import { credentials } from "@grpc/grpc-js";
import {
  type CreateAck,
  type CreateTask,
  ProducerStreamClient,
} from "../../src/wire/generated/codeq/producer.ts";
import type { OpenOptions } from "../tasks/protocol.ts";
import type { Payload, Producer } from "../tasks/role.ts";
import { QUEUE, TOKEN } from "./token.ts";

/** One stream, which has any number of messages under way; a create counts when it is acked. */
export async function openProducer(options: OpenOptions): Promise<Producer> {
  const { server: ports, perMessage = 1 } = options;
  if (ports === undefined) throw new Error("where is the server?");
  const client = new ProducerStreamClient(
    `127.0.0.1:${ports.producer}`,
    credentials.createInsecure(),
  );
  const stream = client.stream();
  const waiting = new Map<bigint, () => void>();
  let seq = 0n;
  let fail: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  stream.on("error", (error) => fail(error));
  const settle = (ack: CreateAck): void => {
    if (!ack.ok) return fail(new Error(ack.errorMessage));
    waiting.get(ack.seq)?.();
    waiting.delete(ack.seq);
  };
  const greeted = new Promise<void>((resolve) => {
    stream.on("data", ({ event }) => {
      if (event?.$case === "createAckBatch") for (const ack of event.value.acks) settle(ack);
      else if (event?.$case === "createAck") settle(event.value);
      else if (event?.$case === "helloAck") resolve();
      else fail(new Error(`the server said ${JSON.stringify(event)}`));
    });
  });
  stream.write({ event: { $case: "hello", value: { token: TOKEN } } });
  await Promise.race([greeted, failed]);

  const create = (payload: Payload): CreateTask => {
    seq += 1n;
    return { ...BLANK, seq, payload: Buffer.from(JSON.stringify(payload)) };
  };
  const send = async (tasks: readonly CreateTask[]): Promise<void> => {
    const [only] = tasks;
    const last = tasks.at(-1);
    if (only === undefined || last === undefined) return;
    // Acks of one message come together.
    const acked = new Promise<void>((resolve) => waiting.set(last.seq, resolve));
    stream.write(
      perMessage === 1
        ? { event: { $case: "create", value: only } }
        : { event: { $case: "createBatch", value: { tasks: [...tasks] } } },
    );
    await acked;
  };
  return {
    async enqueue(payloads) {
      const messages: Promise<void>[] = [];
      for (let first = 0; first < payloads.length; first += perMessage) {
        messages.push(send(payloads.slice(first, first + perMessage).map(create)));
      }
      await Promise.race([Promise.all(messages), failed]);
    },
    async close() {
      stream.end();
      client.close();
    },
  };
}

const BLANK: Omit<CreateTask, "seq" | "payload"> = {
  command: QUEUE,
  priority: 5,
  webhook: "",
  maxAttempts: 0,
  idempotencyKey: "",
  runAt: undefined,
  delaySeconds: 0,
  traceParent: "",
  traceState: "",
  deduplicationKey: "",
  taskId: "",
};
