import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import { JsonText } from "../../../base/json-text.ts";
import { isUuid } from "../../../base/uuid.ts";
import { type Caller, requireMay } from "../../auth/caller.ts";
import type { ClaimDesk, ClaimToken, HeldTask } from "../claim-desk.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import type { ResolvedHttpLimits } from "../options.ts";
import { anyJson, idParams, instant, name } from "../schemas.ts";
import type { Waits } from "../waits.ts";

const TAG = "Claims";
const COUNT_MAX = 100;
const LEASE_SECONDS_MAX = 86_400;

const heldTask = z
  .object({
    token: z.string().openapi({ description: "For every act on this claim" }),
    id: z.string(),
    queue: z.string(),
    kind: z.string().optional(),
    payload: anyJson.optional(),
    payloadBase64: z.string().optional(),
    contentType: z.string(),
    priority: z.number().int(),
    partitionKey: z.string().optional(),
    attempt: z.number().int(),
    maxAttempts: z.number().int(),
    leaseUntil: instant,
    createdAt: instant,
    runAt: instant,
    traceParent: z.string().optional(),
    traceState: z.string().optional(),
  })
  .openapi("HeldTask");

/** One text of the two parts that a task id does not say. */
export const writeToken = ({ generation, claimId }: ClaimToken): string =>
  `${generation}.${claimId}`;

export function readToken(taskId: string, text: string): ClaimToken {
  const [, generation, claimId] = /^(\d{1,9})\.([0-9a-f-]{36})$/.exec(text) ?? [];
  if (generation === undefined || claimId === undefined || !isUuid(claimId)) {
    throw new InvalidInputError("token must be the one that the claim returned");
  }
  return { taskId, generation: Number(generation), claimId };
}

function toView(task: HeldTask): object {
  const { token, payload, bytes, webhook: _webhook, tenant: _tenant, ...more } = task;
  const { holder: _holder, claimedAt: _claimedAt, ...rest } = more;
  const body = bytes === undefined ? { payload } : { payloadBase64: bytes.toString("base64") };
  return { token: writeToken(token), ...rest, ...body };
}

/** Those that were named, each allowed; else all that the caller is for. */
export function claimedQueues(
  caller: Caller,
  named: readonly string[] | undefined,
): "all" | readonly string[] {
  if (named === undefined) return caller.queues === "all" ? "all" : [...caller.queues];
  for (const queue of named) requireMay(caller, "task.claim", queue);
  return named;
}

function claiming(desk: ClaimDesk, limits: ResolvedHttpLimits, waits: Waits): Endpoint {
  return endpoint({
    method: "post",
    path: "/v1/claims",
    tag: TAG,
    summary: "Claim tasks, waited for if need be",
    act: "task.claim",
    body: z
      .strictObject({
        queues: z.array(name).min(1).max(1_000).optional(),
        count: z.number().int().min(1).max(COUNT_MAX).optional(),
        leaseSeconds: z.number().min(1).max(LEASE_SECONDS_MAX).optional(),
        waitSeconds: z.number().min(0).max(limits.waitSecondsMax).optional(),
      })
      .openapi("Claim"),
    isBodyOptional: true,
    answers: {
      200: {
        description: "The tasks; none when there was nothing in time",
        schema: z.object({ tasks: z.array(heldTask) }),
      },
    },
    async handle({ caller, body, signal }) {
      const { count = 1, leaseSeconds, waitSeconds = 0 } = body;
      const request = {
        tenant: caller.tenant,
        holder: caller.subject,
        queues: claimedQueues(caller, body.queues),
        count,
        leaseSeconds,
        waitMs: waitSeconds * 1000,
      };
      const tasks = await (waitSeconds === 0
        ? desk.claim(request, signal)
        : waits.during(caller.tenant, () => desk.claim(request, signal)));
      return { status: 200, body: { tasks: tasks.map(toView) } };
    },
  });
}

const token = { token: z.string().min(1).max(100) };
const done = z.object({ id: z.string() });
const gone = { 409: { description: "The claim is no longer held: drop the work" } };

function finishing(desk: ClaimDesk): Endpoint[] {
  return [
    endpoint({
      method: "post",
      path: "/v1/tasks/:id/complete",
      tag: TAG,
      summary: "Say that a claimed task is done",
      act: "task.finish",
      params: idParams,
      body: z.strictObject({ ...token, result: anyJson.optional() }),
      verbatim: ["result"],
      answers: { 200: { description: "It is completed", schema: done }, ...gone },
      async handle({ caller, params: { id }, body }) {
        const result = body.result instanceof JsonText ? body.result : undefined;
        await desk.complete(caller, readToken(id, body.token), result);
        return { status: 200, body: { id } };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/tasks/:id/fail",
      tag: TAG,
      summary: "Say that a claimed task failed; it is tried again unless retry is false",
      act: "task.finish",
      params: idParams,
      body: z.strictObject({
        ...token,
        reason: z.string().min(1).max(10_000),
        retry: z.boolean().optional(),
      }),
      answers: { 200: { description: "It is recorded", schema: done }, ...gone },
      async handle({ caller, params: { id }, body: { reason, retry = true, ...given } }) {
        await desk.fail(caller, readToken(id, given.token), { reason, retry });
        return { status: 200, body: { id } };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/tasks/:id/nack",
      tag: TAG,
      summary: "Put a claimed task back for a while; the attempt counts",
      act: "task.nack",
      params: idParams,
      body: z.strictObject({
        ...token,
        delaySeconds: z.number().min(0).optional(),
        reason: z.string().min(1).max(10_000).optional(),
      }),
      answers: {
        200: {
          description: "When it comes back, or that it is dead",
          schema: z.object({ id: z.string(), delaySeconds: z.number(), isDead: z.boolean() }),
        },
        ...gone,
      },
      async handle({ caller, params: { id }, body: { delaySeconds, reason, ...given } }) {
        const nack = { delaySeconds, reason };
        const answer = await desk.nack(caller, readToken(id, given.token), nack);
        return { status: 200, body: { id, ...answer } };
      },
    }),
  ];
}

function holding(desk: ClaimDesk): Endpoint[] {
  return [
    endpoint({
      method: "post",
      path: "/v1/tasks/:id/abandon",
      tag: TAG,
      summary: "Give a claimed task back, as if it had never been claimed",
      act: "task.abandon",
      params: idParams,
      body: z.strictObject(token),
      answers: { 200: { description: "It is pending", schema: done }, ...gone },
      async handle({ caller, params: { id }, body }) {
        await desk.abandon(caller, readToken(id, body.token));
        return { status: 200, body: { id } };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/tasks/:id/heartbeat",
      tag: TAG,
      summary: "Hold a claimed task for longer",
      act: "task.renew",
      params: idParams,
      body: z.strictObject({
        ...token,
        extendSeconds: z.number().min(1).max(LEASE_SECONDS_MAX).optional(),
      }),
      answers: {
        200: {
          description: "Until when it is held",
          schema: z.object({ id: z.string(), leaseUntil: instant }),
        },
        ...gone,
      },
      async handle({ caller, params: { id }, body: { extendSeconds, ...given } }) {
        const leaseUntil = await desk.extend(caller, readToken(id, given.token), extendSeconds);
        return { status: 200, body: { id, leaseUntil } };
      },
    }),
  ];
}

export function claimEndpoints(
  desk: ClaimDesk,
  limits: ResolvedHttpLimits,
  waits: Waits,
): Endpoint[] {
  return [claiming(desk, limits, waits), ...finishing(desk), ...holding(desk)];
}
