import { z } from "@hono/zod-openapi";
import {
  ConflictError,
  ForbiddenError,
  InvalidInputError,
  NotFoundError,
  TidemillError,
} from "../../../base/errors.ts";
import { JsonText } from "../../../base/json-text.ts";
import { joinArtifacts } from "../../../delivery/codeq-artifacts.ts";
import { LeaseLostError } from "../../../tasks/task.ts";
import type { TenantScope } from "../../../worker/tenant-scope.ts";
import { type Caller, may } from "../../auth/caller.ts";
import type { ClaimDesk, ClaimToken } from "../claim-desk.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { claimedQueues } from "../routes/claims.ts";
import { anyJson } from "../schemas.ts";
import { artifactOf, type GivenArtifact, givenArtifacts } from "./artifacts.ts";
import { type CodeqContext, codeqTask, findTask, idParams, TAG } from "./tasks.ts";
import { toClaimedCodeqTask } from "./view.ts";

const COUNT_MAX = 10;
const WAIT_SECONDS_MAX = 30;
const BATCH_MAX = 100;
const COMMANDS_MAX = 1_000;
/** CodeQ's callers ask for any time: longer leases are cut to this. */
const LEASE_SECONDS_MAX = 86_400;

/** Undefined for the default. */
const leaseOf = (seconds: number): number | undefined =>
  seconds > 0 ? Math.min(seconds, LEASE_SECONDS_MAX) : undefined;

const claimFields = {
  commands: z.array(z.string()).max(COMMANDS_MAX).optional(),
  leaseSeconds: z.number().int().optional(),
};

interface Given {
  readonly commands?: string[] | undefined;
  readonly leaseSeconds?: number | undefined;
  readonly waitSeconds?: number | undefined;
  readonly count?: number | undefined;
}

/** Nothing is asked for behind the claim: a task that nobody hears of waits out its lease. */
async function claim(
  { waits, limits }: CodeqContext,
  desk: ClaimDesk,
  { caller, signal }: { readonly caller: Caller; readonly signal: AbortSignal },
  given: Given,
): Promise<object[]> {
  const { commands = [], leaseSeconds = 0, waitSeconds = 0, count = 1 } = given;
  if (commands.some((command) => !may(caller, "task.claim", command))) {
    throw new ForbiddenError("event type not allowed");
  }
  const longest = Math.min(WAIT_SECONDS_MAX, limits.waitSecondsMax);
  const waitMs = Math.min(Math.max(0, waitSeconds), longest) * 1000;
  const request = {
    tenant: caller.tenant,
    holder: caller.subject,
    queues: claimedQueues(caller, commands.length === 0 ? undefined : commands),
    count,
    leaseSeconds: leaseOf(leaseSeconds),
    waitMs,
  };
  const tasks = await (waitMs === 0
    ? desk.claim(request, signal)
    : waits.during(caller.tenant, () => desk.claim(request, signal)));
  return tasks.map(toClaimedCodeqTask);
}

function claiming(context: CodeqContext, desk: ClaimDesk): Endpoint[] {
  const shared = { method: "post", tag: TAG, act: "task.claim", errors: "codeq" } as const;
  const nothing = { 204: { description: "There was nothing in time" } };
  return [
    endpoint({
      ...shared,
      path: "/v1/codeq/tasks/claim",
      summary: "Claim a task",
      body: z.object({ ...claimFields, waitSeconds: z.number().int().optional() }),
      isBodyOptional: true,
      answers: { 200: { description: "The task", schema: codeqTask }, ...nothing },
      async handle(call) {
        const [task] = await claim(context, desk, call, call.body);
        return task === undefined ? { status: 204 } : { status: 200, body: task };
      },
    }),
    endpoint({
      ...shared,
      path: "/v1/codeq/tasks/claim/batch",
      summary: "Claim tasks",
      body: z.object({ ...claimFields, count: z.number().int().min(1).max(COUNT_MAX) }),
      answers: {
        200: { description: "The tasks", schema: z.object({ tasks: z.array(codeqTask) }) },
        ...nothing,
      },
      async handle(call) {
        const tasks = await claim(context, desk, call, call.body);
        return tasks.length === 0 ? { status: 204 } : { status: 200, body: { tasks } };
      },
    }),
  ];
}

/** CodeQ's callers carry no token: whoever holds the task may act on it. */
async function tokenOf(desk: ClaimDesk, caller: Caller, id: string): Promise<ClaimToken> {
  const found = await desk.find(caller.tenant, caller.subject, id);
  if (found === "not-found") throw new NotFoundError("task not found");
  if (found === "not-owner") throw new ForbiddenError("not-owner");
  if (found === "not-in-progress") throw new ConflictError("not-in-progress");
  return found;
}

/** A claim that was lost in between is somebody else's. */
async function act<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof LeaseLostError ? new ForbiddenError("not-owner") : error;
  }
}

function holding(desk: ClaimDesk): Endpoint[] {
  const shared = { method: "post", tag: TAG, errors: "codeq", params: idParams } as const;
  return [
    endpoint({
      ...shared,
      path: "/v1/codeq/tasks/:id/heartbeat",
      summary: "Hold a task for longer",
      act: "task.renew",
      body: z.object({ extendSeconds: z.number().int().optional() }),
      isBodyOptional: true,
      answers: { 200: { description: "It is held", schema: z.object({ ok: z.boolean() }) } },
      async handle({ caller, params: { id }, body: { extendSeconds = 0 } }) {
        const token = await tokenOf(desk, caller, id);
        await act(() => desk.extend(caller, token, leaseOf(extendSeconds)));
        return { status: 200, body: { ok: true } };
      },
    }),
    endpoint({
      ...shared,
      path: "/v1/codeq/tasks/:id/abandon",
      summary: "Give a task back",
      act: "task.abandon",
      body: z.object({}),
      isBodyOptional: true,
      answers: { 200: { description: "It is back", schema: z.object({ status: z.string() }) } },
      async handle({ caller, params: { id } }) {
        const token = await tokenOf(desk, caller, id);
        await act(() => desk.abandon(caller, token));
        return { status: 200, body: { status: "requeued" } };
      },
    }),
    endpoint({
      ...shared,
      path: "/v1/codeq/tasks/:id/nack",
      summary: "Put a task back for a while",
      act: "task.nack",
      body: z.object({ delaySeconds: z.number().int().optional(), reason: z.string().optional() }),
      isBodyOptional: true,
      answers: {
        200: {
          description: "It is back, or dead",
          schema: z.object({ status: z.enum(["requeued", "dlq"]), delaySeconds: z.number() }),
        },
      },
      async handle({ caller, params: { id }, body: { delaySeconds, reason } }) {
        const token = await tokenOf(desk, caller, id);
        const nack = { delaySeconds, reason: reason || undefined };
        const answer = await act(() => desk.nack(caller, token, nack));
        const status = answer.isDead ? "dlq" : "requeued";
        return { status: 200, body: { status, delaySeconds: answer.delaySeconds } };
      },
    }),
  ];
}

const resultFields = {
  status: z.string(),
  result: anyJson.optional(),
  error: z.string().optional(),
};

interface GivenResult {
  readonly status: string;
  readonly result?: unknown;
  readonly error?: string | undefined;
  readonly artifacts?: readonly GivenArtifact[] | undefined;
}

async function submit(
  desk: ClaimDesk,
  { caller, scope, id }: { readonly caller: Caller; readonly scope: TenantScope; id: string },
  given: GivenResult,
): Promise<object> {
  const { status, error = "" } = given;
  if (status !== "COMPLETED" && status !== "FAILED") throw new InvalidInputError("invalid status");
  if (status === "FAILED" && error.trim() === "") {
    throw new InvalidInputError("error required when status=FAILED");
  }
  const artifacts = (given.artifacts ?? []).map(artifactOf);
  const token = await tokenOf(desk, caller, id);
  const result = given.result instanceof JsonText ? given.result : undefined;
  const stored = joinArtifacts({ result: result?.text, artifacts });
  await act(() =>
    status === "COMPLETED"
      ? desk.complete(caller, token, stored === undefined ? undefined : new JsonText(stored))
      : desk.fail(caller, token, { reason: error, retry: true }),
  );
  const { finished_at } = await findTask(scope, id);
  return {
    taskId: id,
    status,
    result,
    error: error || undefined,
    artifacts: status === "COMPLETED" ? artifacts : [],
    completedAt: finished_at ?? undefined,
  };
}

function finishing(desk: ClaimDesk): Endpoint[] {
  const record = z.record(z.string(), anyJson);
  return [
    endpoint({
      method: "post",
      path: "/v1/codeq/tasks/:id/result",
      tag: TAG,
      summary: "Say how a task ended",
      act: "task.finish",
      errors: "codeq",
      params: idParams,
      body: z.object({ ...resultFields, artifacts: givenArtifacts.optional() }),
      verbatim: ["result"],
      answers: { 200: { description: "What was recorded", schema: record } },
      async handle({ caller, scope, params: { id }, body }) {
        return { status: 200, body: await submit(desk, { caller, scope, id }, body) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/codeq/tasks/batch/results",
      tag: TAG,
      summary: "Say how tasks ended, each for itself",
      act: "task.finish",
      errors: "codeq",
      body: z.object({
        results: z
          .array(z.object({ taskId: z.string(), ...resultFields }))
          .min(1)
          .max(BATCH_MAX),
      }),
      verbatim: ["results[].result"],
      answers: {
        200: {
          description: "A result or an error each, in their order",
          schema: z.object({ results: z.array(record) }),
        },
      },
      async handle({ caller, scope, body }) {
        const results: object[] = [];
        for (const { taskId, ...given } of body.results) {
          try {
            const result = await submit(desk, { caller, scope, id: taskId }, given);
            results.push({ taskId, result });
          } catch (error) {
            if (!(error instanceof TidemillError) || error.retryable) throw error;
            results.push({ taskId, error: error.message });
          }
        }
        return { status: 200, body: { results } };
      },
    }),
  ];
}

export function codeqClaimEndpoints(context: CodeqContext, desk: ClaimDesk): Endpoint[] {
  return [...claiming(context, desk), ...holding(desk), ...finishing(desk)];
}
