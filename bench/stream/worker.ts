import { credentials } from "@grpc/grpc-js";
import {
  type Result,
  type Task,
  type WorkerEvent,
  WorkerStreamClient,
} from "../../src/wire/generated/codeq/worker.ts";
import type { OpenOptions } from "../tasks/protocol.ts";
import type { Closeable, Handler, Payload } from "../tasks/role.ts";
import { QUEUE, TOKEN } from "./token.ts";

/** As many messages of tasks as one stream has under way. */
const READIES = 16;
/** Streams that are opened at once: a server turns away strangers who come in crowds. */
const AT_ONCE = 100;
const BODY = Buffer.from(JSON.stringify({ ok: true }));

/** Streams that run tasks as they come, each end with a body and acked. */
export async function openWorker(options: OpenOptions, handler: Handler): Promise<Closeable> {
  const { server: ports, streams = 1 } = options;
  if (ports === undefined) throw new Error("where is the server?");
  const client = new WorkerStreamClient(`127.0.0.1:${ports.worker}`, credentials.createInsecure());
  const all: WorkerStream[] = [];
  while (all.length < streams) {
    const next = Array.from({ length: Math.min(AT_ONCE, streams - all.length) }, () =>
      openStream(client.stream(), options, handler),
    );
    all.push(...(await Promise.all(next)));
  }
  return {
    async close() {
      for (const stream of all) stream.end();
      client.close();
    },
  };
}

type WorkerStream = ReturnType<WorkerStreamClient["stream"]>;

/** Resolves when the server has greeted it. */
async function openStream(
  stream: WorkerStream,
  { perMessage = 1, streams = 1 }: OpenOptions,
  handler: Handler,
): Promise<WorkerStream> {
  const say = (event: WorkerEvent["event"]): void => void stream.write({ event });
  const ready = (): void =>
    say({ $case: "ready", value: { commands: [QUEUE], leaseSeconds: 0, count: perMessage } });
  const run = async (task: Task): Promise<Result> => {
    await handler(JSON.parse(task.payload.toString()) as Payload);
    return { taskId: task.id, status: "COMPLETED", resultJson: BODY, error: "" };
  };
  const runBatch = async (tasks: readonly Task[]): Promise<void> => {
    say({ $case: "resultBatch", value: { results: await Promise.all(tasks.map(run)) } });
    ready();
  };
  const runOne = async (task: Task | undefined): Promise<void> => {
    if (task === undefined) throw new Error("an assignment without a task");
    say({ $case: "result", value: await run(task) });
    ready();
  };
  return await new Promise((resolve, reject) => {
    stream.on("error", reject);
    stream.on("data", ({ event }) => {
      if (event?.$case === "taskBatch") void runBatch(event.value.tasks);
      else if (event?.$case === "task") void runOne(event.value.task);
      else if (event?.$case === "helloAck") {
        for (let n = 0; n < (streams > 1 ? 1 : READIES); n += 1) ready();
        resolve(stream);
      } else if (event?.$case === "error") reject(new Error(event.value.message));
    });
    say({ $case: "hello", value: { token: TOKEN, workerId: "" } });
  });
}
