import type { WebhookFormat, WebhookType } from "./message.ts";
import type { AttemptRow, DeliveryRow, DeliveryState } from "./sql/delivery-log.ts";
import type { EndpointRow } from "./sql/endpoints.ts";
import type { DeathCause } from "./verdict.ts";

/** What may be shown of an endpoint: all but its secrets. */
export interface WebhookEndpoint {
  readonly id: string;
  readonly tenant: string;
  /** None of the endpoint "default". */
  readonly url: string | undefined;
  readonly description: string | undefined;
  readonly format: WebhookFormat;
  readonly rotatedAt: Date | undefined;
  /** While a rotation is under way. */
  readonly oldSecretUntil: Date | undefined;
  readonly disabledAt: Date | undefined;
  readonly disabledReason: string | undefined;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

export function toEndpoint(row: EndpointRow): WebhookEndpoint {
  return {
    id: row.id,
    tenant: row.tenant,
    url: row.url ?? undefined,
    description: row.description ?? undefined,
    format: row.format,
    rotatedAt: row.rotated_at ?? undefined,
    oldSecretUntil: row.old_secret_until ?? undefined,
    disabledAt: row.disabled_at ?? undefined,
    disabledReason: row.disabled_reason ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}

/** One message for one end of a task. */
export interface WebhookDelivery {
  /** As the header `webhook-id` has it. */
  readonly id: string;
  readonly tenant: string;
  readonly taskId: string;
  readonly type: WebhookType;
  /** When the task ended. */
  readonly at: Date;
  /** "default" for a task that named an address. */
  readonly endpoint: string;
  /** Of a task that named one. */
  readonly url: string | undefined;
  readonly state: DeliveryState;
  /** Calls since it was made, or sent again by a person. */
  readonly attempt: number;
  /** Of a pending one. */
  readonly nextAt: Date | undefined;
  readonly lastStatus: number | undefined;
  readonly lastError: string | undefined;
  /** Of a dead one. */
  readonly cause: DeathCause | undefined;
  readonly createdAt: Date;
  /** Of a delivered or dead one. */
  readonly endedAt: Date | undefined;
}

export function toDelivery(row: DeliveryRow): WebhookDelivery {
  return {
    id: row.id,
    tenant: row.tenant,
    taskId: row.task_id,
    type: row.type,
    at: row.at,
    endpoint: row.endpoint,
    url: row.url ?? undefined,
    state: row.state,
    attempt: row.attempt,
    nextAt: row.state === "pending" ? row.next_at : undefined,
    lastStatus: row.last_status ?? undefined,
    lastError: row.last_error ?? undefined,
    cause: row.cause ?? undefined,
    createdAt: row.created_at,
    endedAt: row.ended_at ?? undefined,
  };
}

/** One call, or why there was none. */
export interface WebhookAttempt {
  readonly attempt: number;
  readonly at: Date;
  readonly status: number | undefined;
  /** An error code, the cause of death, or "lost" when the sender ended before it could tell. */
  readonly error: string | undefined;
  readonly message: string | undefined;
  readonly durationMs: number | undefined;
  /** How the answer began. */
  readonly answer: string | undefined;
}

export function toAttempt(row: AttemptRow): WebhookAttempt {
  return {
    attempt: row.attempt,
    at: row.at,
    status: row.status ?? undefined,
    error: row.error ?? undefined,
    message: row.message ?? undefined,
    durationMs: row.duration_ms ?? undefined,
    answer: row.answer ?? undefined,
  };
}
