import { UnavailableError } from "../base/errors.ts";
import type { WaitForOptions } from "../consumers/wait-for.ts";
import type { WorkerOptions } from "./options.ts";
import type { Worker } from "./worker.ts";

/** What it takes of a connection. */
interface Mill {
  latestPosition(): Promise<bigint>;
  startWorker(options: WorkerOptions): Promise<Worker>;
  waitFor(
    consumer: string,
    appended: { readonly position: bigint },
    options: WaitForOptions,
  ): Promise<void>;
}

/** Runs a worker until its consumers have handled what is in the log now. */
export async function runToHead(
  mill: Mill,
  options: WorkerOptions & WaitForOptions,
): Promise<bigint> {
  const { timeoutMs, signal, ...workerOptions } = options;
  const head = await mill.latestPosition();
  await using worker = await mill.startWorker(workerOptions);
  const wait: WaitForOptions = {
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(signal === undefined ? {} : { signal }),
  };
  const handled = (options.consumers ?? []).map((one) =>
    mill.waitFor(one.name, { position: head }, wait),
  );
  const ended = worker.finished.then(() => {
    throw new UnavailableError("the worker was stopped before it had reached the head");
  });
  await Promise.race([Promise.all(handled), ended]);
  return head;
}
