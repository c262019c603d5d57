import type { HttpQueueCalls } from "./http-call.ts";
import { Queue, type QueueOptions } from "./queue.ts";

/** How a call was answered: the result of a task of an `http` queue. */
export interface HttpResult {
  readonly status: number;
  /** Those that the queue keeps, by names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body, when it is text. */
  readonly body?: string;
  /** The body, when it is not. */
  readonly bodyBase64?: string;
  /** There was more of the body than is kept. */
  readonly isTruncated: boolean;
}

export interface HttpQueueOptions extends Omit<QueueOptions, "http" | "resultSchema"> {
  /** What all its tasks have in common. Defaults to nothing: each names its target. */
  readonly http?: HttpQueueCalls;
}

/** No answer after so long, and the attempt has failed, unless the queue says otherwise. */
const TIMEOUT_SECONDS = 30;

/**
 * A queue whose tasks are HTTP calls: each payload is sent to the target of its task, by any worker
 * with `httpJobs`. `timeoutSeconds` of a call defaults to 30.
 */
export function httpQueue<Payload = unknown>(
  name: string,
  options: HttpQueueOptions = {},
): Queue<Payload, HttpResult> {
  const { http = {}, ...others } = options;
  return new Queue(name, { timeoutSeconds: TIMEOUT_SECONDS, ...others, http });
}
