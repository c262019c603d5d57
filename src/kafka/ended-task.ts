import type { EndRow } from "./sql/task-ends.ts";

/** A task that has ended, as it is told to others. */
export interface EndedTask {
  /** Of this end: of one key they grow in the order of ends. A task may end more than once. */
  readonly position: bigint;
  readonly id: string;
  readonly tenant: string;
  readonly queue: string;
  readonly kind: string | undefined;
  readonly partitionKey: string | undefined;
  readonly priority: number;
  readonly state: "completed" | "failed" | "dead" | "cancelled";
  /** Of a dead one. */
  readonly cause: string | undefined;
  readonly reason: string | undefined;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly createdAt: Date;
  /** When its last attempt began; undefined when there was none. */
  readonly startedAt: Date | undefined;
  readonly endedAt: Date;
  /** Who had it last. */
  readonly workerId: string | undefined;
  readonly traceParent: string | undefined;
  /** JSON, as it was given. */
  readonly result: string | undefined;
  /** JSON, or bytes; undefined unless payloads are published. */
  readonly payload: string | Buffer | undefined;
  /** Of a payload of bytes. */
  readonly contentType: string | undefined;
}

export function toEndedTask(row: EndRow): EndedTask {
  return {
    position: BigInt(row.position),
    id: row.task_id,
    tenant: row.tenant,
    queue: row.queue,
    kind: row.kind ?? undefined,
    partitionKey: row.partition_key ?? undefined,
    priority: row.priority,
    state: row.state,
    cause: row.cause ?? undefined,
    reason: row.reason ?? undefined,
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    createdAt: row.created_at,
    startedAt: row.claimed_at ?? undefined,
    endedAt: row.ended_at,
    workerId: row.worker_id ?? undefined,
    traceParent: row.trace_parent ?? undefined,
    result: row.result ?? undefined,
    payload: row.payload ?? row.bytes ?? undefined,
    contentType: row.content_type ?? undefined,
  };
}

/** All that is known of it, as JSON. Result and payload are as they were written. */
export function describeEnd(task: EndedTask): string {
  const { payload, result, traceParent: _, ...facts } = task;
  const texts = [JSON.stringify({ ...facts, position: String(task.position) }).slice(0, -1)];
  if (result !== undefined) texts.push(`"result":${result}`);
  if (typeof payload === "string") texts.push(`"payload":${payload}`);
  else if (payload !== undefined) texts.push(`"payloadBase64":"${payload.toString("base64")}"`);
  return `${texts.join(",")}}`;
}
