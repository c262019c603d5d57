import { z } from "@hono/zod-openapi";
import { InvalidInputError, NotFoundError, TidemillError } from "../../../base/errors.ts";
import { JsonText } from "../../../base/json-text.ts";
import { withoutUndefined } from "../../../base/options.ts";
import { splitArtifacts } from "../../../delivery/codeq-artifacts.ts";
import { withDefaultAttempts } from "../../../tasks/new-task.ts";
import { hasEnded } from "../../../tasks/results.ts";
import type { TaskRow } from "../../../tasks/sql/inspect.ts";
import type { TenantScope } from "../../../worker/tenant-scope.ts";
import type { Tenants } from "../../../worker/tenants.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Caller, requireMay } from "../../auth/caller.ts";
import { refusalOf } from "../../producer/codeq-creates.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import type { ResolvedHttpLimits } from "../options.ts";
import { anyJson } from "../schemas.ts";
import type { Waits } from "../waits.ts";
import { readTopic } from "./sql/topics.ts";
import { STATUS, toCodeqTask } from "./view.ts";

export const TAG = "CodeQ";
const BATCH_MAX = 100;
/** Creates of one batch that are under way together. */
const CREATES_AT_ONCE = 10;

export const codeqTask = z.record(z.string(), anyJson).openapi("CodeqTask");
export const idParams = z.object({ id: z.string() });

// What CodeQ does not know it ignores.
const newTask = z.object({
  command: z.string(),
  payload: anyJson,
  priority: z.number().int().optional(),
  webhook: z.string().optional(),
  maxAttempts: z.number().int().min(0).optional(),
  idempotencyKey: z.string().optional(),
  runAt: z.iso.datetime({ offset: true }).optional(),
  delaySeconds: z.number().int().optional(),
  // Of later releases, and refused: to ignore them would do work twice that was to be done once.
  deduplicationKey: z.string().optional(),
  taskId: z.string().optional(),
});
type GivenTask = z.infer<typeof newTask>;

export interface CodeqContext {
  readonly mill: Tidemill;
  readonly tenants: Tenants;
  readonly limits: ResolvedHttpLimits;
  readonly waits: Waits;
}

/** In the words that its clients know. */
export async function findTask(scope: TenantScope, id: string): Promise<TaskRow> {
  try {
    return await scope.task(id);
  } catch (error) {
    const isUnknown = error instanceof NotFoundError || error instanceof InvalidInputError;
    throw isUnknown ? new NotFoundError("task not found") : error;
  }
}

interface Creation {
  readonly caller: Caller;
  readonly scope: TenantScope;
  readonly given: GivenTask;
}

/** A command that nobody has registered becomes a queue, as there. */
async function create(context: CodeqContext, creation: Creation): Promise<object> {
  const { caller, scope, given } = creation;
  const command = given.command.trim();
  if (command === "") throw new InvalidInputError("command is required");
  if ((given.delaySeconds ?? 0) < 0) throw new InvalidInputError("delaySeconds must be >= 0");
  const refusal = refusalOf(given);
  if (refusal !== undefined) throw new InvalidInputError(refusal);
  requireMay(caller, "task.create", command);
  const policy = await readTopic(context.tenants.store(caller.tenant), caller.tenant, command);
  const { runAt, delaySeconds, webhook, idempotencyKey } = given;
  const maxAttempts = given.maxAttempts || undefined;
  const task = {
    payload: given.payload instanceof JsonText ? given.payload : new JsonText("null"),
    ...(given.priority === undefined ? {} : { priority: Math.min(9, Math.max(0, given.priority)) }),
    ...withoutUndefined({
      webhook: webhook || undefined,
      idempotencyKey: idempotencyKey || undefined,
      maxAttempts,
      delaySeconds: runAt === undefined ? delaySeconds : undefined,
      runAt,
    }),
  };
  const attempts = maxAttempts ?? policy?.policy.maxAttempts;
  const isDefault = maxAttempts === undefined && attempts !== undefined;
  const [id = ""] = await scope.enqueue(command, [
    isDefault ? withDefaultAttempts(task, attempts) : task,
  ]);
  return toCodeqTask(await scope.task(id));
}

function creating(context: CodeqContext): Endpoint[] {
  return [
    endpoint({
      method: "post",
      path: "/v1/codeq/tasks",
      tag: TAG,
      summary: "Create a task",
      act: "task.create",
      errors: "codeq",
      body: newTask,
      verbatim: ["payload"],
      answers: { 202: { description: "The task", schema: codeqTask } },
      async handle({ caller, scope, body }) {
        return { status: 202, body: await create(context, { caller, scope, given: body }) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/codeq/tasks/batch",
      tag: TAG,
      summary: "Create tasks, each for itself",
      act: "task.create",
      errors: "codeq",
      body: z.object({ tasks: z.array(newTask).min(1).max(BATCH_MAX) }),
      verbatim: ["tasks[].payload"],
      answers: {
        200: {
          description: "A task or an error each, in their order",
          schema: z.object({ results: z.array(z.record(z.string(), anyJson)) }),
        },
      },
      async handle({ caller, scope, body: { tasks } }) {
        const results: object[] = [];
        for (let from = 0; from < tasks.length; from += CREATES_AT_ONCE) {
          const some = tasks.slice(from, from + CREATES_AT_ONCE).map(async (given) => {
            try {
              return { task: await create(context, { caller, scope, given }) };
            } catch (error) {
              // Only what concerns this one task; anything else concerns the call.
              if (!(error instanceof TidemillError) || error.retryable) throw error;
              return { error: error.message };
            }
          });
          results.push(...(await Promise.all(some)));
        }
        return { status: 200, body: { results } };
      },
    }),
  ];
}

const SECONDS_MAX = 60;

/** What is above the limit is cut, and what is no number is none. */
function secondsOf(text: string | undefined, limits: ResolvedHttpLimits): number {
  const seconds = Number(text ?? 0);
  if (!Number.isFinite(seconds)) return 0;
  return Math.max(0, Math.min(seconds, SECONDS_MAX, limits.waitSecondsMax));
}

function reading({ limits, waits }: CodeqContext): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/codeq/tasks/:id",
      tag: TAG,
      summary: "Get a task",
      act: "task.read",
      errors: "codeq",
      params: idParams,
      answers: { 200: { description: "The task", schema: codeqTask } },
      async handle({ scope, params }) {
        return { status: 200, body: toCodeqTask(await findTask(scope, params.id)) };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/codeq/tasks/:id/result",
      tag: TAG,
      summary: "The task and its result, waited for if need be",
      act: "task.read",
      errors: "codeq",
      params: idParams,
      query: z.object({ waitSeconds: z.string().optional() }),
      answers: {
        200: {
          description: "It has ended",
          schema: z.object({ task: codeqTask, result: z.record(z.string(), anyJson) }),
        },
      },
      async handle({ scope, params: { id }, query, signal }) {
        let row = await findTask(scope, id);
        const seconds = secondsOf(query.waitSeconds, limits);
        if (!hasEnded(row) && seconds > 0) {
          row = await waits.during(scope.tenant, () =>
            scope.end(id, { timeoutMs: seconds * 1000, signal }),
          );
        }
        if (!hasEnded(row)) throw new NotFoundError("result not found");
        return { status: 200, body: { task: toCodeqTask(row), result: toRecord(row) } };
      },
    }),
  ];
}

function toRecord(row: TaskRow): object {
  const { result, artifacts } = splitArtifacts(row.result);
  return {
    taskId: row.id,
    status: STATUS[row.state],
    result: result === undefined ? undefined : new JsonText(result),
    error: row.reason ?? undefined,
    artifacts,
    completedAt: row.finished_at ?? undefined,
  };
}

export function codeqTaskEndpoints(context: CodeqContext): Endpoint[] {
  return [...creating(context), ...reading(context)];
}
