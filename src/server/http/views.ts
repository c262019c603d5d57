import { z } from "@hono/zod-openapi";
import { JsonText } from "../../base/json-text.ts";
import type { Schedule, ScheduleFiring } from "../../schedules/schedule.ts";
import type { TaskRow } from "../../tasks/sql/inspect.ts";
import { type TaskFailure, targetUrlOf } from "../../tasks/view.ts";
import { anyJson, instant } from "./schemas.ts";

const STATES = ["scheduled", "pending", "running", "completed", "failed", "dead", "cancelled"];
export const taskState = z.enum(STATES as [TaskRow["state"], ...TaskRow["state"][]]);

export const taskView = z
  .object({
    id: z.string(),
    state: taskState,
    queue: z.string(),
    tenant: z.string(),
    kind: z.string().optional(),
    priority: z.number().int(),
    partitionKey: z.string().optional(),
    payload: anyJson.optional(),
    payloadBase64: z.string().optional(),
    contentType: z.string(),
    attempt: z.number().int(),
    maxAttempts: z.number().int(),
    generation: z.number().int().openapi({ description: "Of its lease: counts every claim" }),
    createdAt: instant,
    runAt: instant,
    claimedAt: instant.optional(),
    finishedAt: instant.optional(),
    leaseUntil: instant.optional(),
    workerId: z.string().optional(),
    progress: anyJson.optional(),
    result: anyJson.optional(),
    reason: z
      .string()
      .optional()
      .openapi({
        description:
          "Why it failed, died or was cancelled; of one that lives, why it is to be stopped, " +
          "else why its last attempt came to nothing (not in lists)",
      }),
    cause: z.string().optional(),
    webhook: z.string().optional(),
    targetUrl: z.string().optional(),
    causedBy: z.string().optional().openapi({ description: "Position of the event" }),
    traceParent: z.string().optional(),
  })
  .openapi("Task");

/** Payload and result are as they were stored. */
export function toTask(row: TaskRow): object {
  const option = (name: string): unknown => row.options?.[name];
  return {
    id: row.id,
    state: row.state,
    queue: row.queue,
    tenant: row.tenant,
    kind: row.kind ?? undefined,
    priority: row.priority,
    partitionKey: row.partition_key ?? undefined,
    ...storedPayload(row),
    contentType: row.content_type ?? "application/json",
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    generation: row.lease_generation,
    createdAt: row.created_at,
    runAt: row.run_at,
    claimedAt: row.claimed_at ?? undefined,
    finishedAt: row.finished_at ?? undefined,
    leaseUntil: row.lease_until ?? undefined,
    workerId: row.leased_by ?? undefined,
    progress: row.progress ?? undefined,
    result: row.result === null ? undefined : new JsonText(row.result),
    reason: row.reason ?? undefined,
    cause: row.cause ?? undefined,
    webhook: option("webhook"),
    targetUrl: targetUrlOf(row),
    causedBy: option("causedBy"),
    traceParent: option("traceParent"),
  };
}

function storedPayload({ payload, bytes }: Pick<TaskRow, "payload" | "bytes">): object {
  return payload === null
    ? { payloadBase64: (bytes ?? Buffer.alloc(0)).toString("base64") }
    : { payload: new JsonText(payload) };
}

export const failureView = z
  .object({
    at: instant,
    attempt: z.number().int(),
    outcome: z.string(),
    reason: z.string(),
    stack: z.string().optional(),
    workerId: z.string().optional(),
  })
  .openapi("Failure");

export const toFailure = (failure: TaskFailure): object => ({ ...failure });

export const scheduleView = z
  .object({
    name: z.string(),
    tenant: z.string(),
    cron: z.string(),
    timeZone: z.string(),
    queue: z.string(),
    payload: anyJson,
    options: z.record(z.string(), anyJson),
    catchUp: z.enum(["skip", "once", "all"]),
    catchUpMax: z.number().int(),
    nextAt: instant.optional(),
    lastAt: instant.optional(),
    lastTaskId: z.string().optional(),
    missed: z.number().int(),
    pausedAt: instant.optional(),
    lastError: z.string().optional(),
    retryAt: instant.optional(),
    createdAt: instant,
    updatedAt: instant,
  })
  .openapi("Schedule");

export const toScheduleView = (schedule: Schedule): object => ({ ...schedule });

export const firingView = z
  .object({
    tenant: z.string(),
    schedule: z.string(),
    kind: z.enum(["tick", "run-now"]),
    tick: instant,
    taskId: z.string(),
    firedAt: instant,
  })
  .openapi("Firing");

export const toFiringView = (firing: ScheduleFiring): object => ({ ...firing });
