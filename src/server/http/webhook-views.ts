import { z } from "@hono/zod-openapi";
import type { WebhookAttempt } from "../../delivery/webhook-view.ts";
import { instant } from "./schemas.ts";

export const webhookType = z.enum(["task.completed", "task.failed", "task.dead", "task.cancelled"]);
export const deliveryState = z.enum(["pending", "running", "delivered", "dead"]);

export const endpointView = z
  .object({
    id: z.string(),
    tenant: z.string(),
    url: z.string().optional(),
    description: z.string().optional(),
    format: z.enum(["standard", "codeq"]),
    rotatedAt: instant.optional(),
    oldSecretUntil: instant.optional(),
    disabledAt: instant.optional(),
    disabledReason: z.string().optional(),
    createdAt: instant,
    updatedAt: instant,
  })
  .openapi("WebhookEndpoint");

export const deliveryView = z
  .object({
    id: z.string(),
    tenant: z.string(),
    taskId: z.string(),
    type: webhookType,
    at: instant,
    endpoint: z.string(),
    url: z.string().optional(),
    state: deliveryState,
    attempt: z.number().int(),
    nextAt: instant.optional(),
    lastStatus: z.number().int().optional(),
    lastError: z.string().optional(),
    cause: z.string().optional(),
    createdAt: instant,
    endedAt: instant.optional(),
  })
  .openapi("WebhookDelivery");

export const attemptView = z
  .object({
    attempt: z.number().int(),
    at: instant,
    status: z.number().int().optional(),
    error: z.string().optional(),
    message: z.string().optional(),
    durationMs: z.number().int().optional(),
  })
  .openapi("WebhookAttempt");

/** Not how the answer began: a host of the operator's own network may have given it. */
export function toAttemptView({ answer: _answer, ...attempt }: WebhookAttempt): object {
  return attempt;
}
