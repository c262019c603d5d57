import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import { readTrace } from "../../../base/trace-context.ts";
import type { NewTask } from "../../../tasks/new-task.ts";
import { hasEnded } from "../../../tasks/results.ts";
import { requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import type { ResolvedHttpLimits } from "../options.ts";
import {
  anyJson,
  backoff,
  httpCall,
  idParams,
  instant,
  limit,
  name,
  payloadFields,
  payloadOf,
  priority,
  reasonBody,
  taskId,
  wholeNumber,
} from "../schemas.ts";
import { failureView, taskState, taskView, toFailure, toTask } from "../views.ts";
import type { Waits } from "../waits.ts";

const TAG = "Tasks";
const BATCH_MAX = 1_000;
const LIMIT = 50;
/** Of each table: a page must not take longer the more there is. */
export const LOOK_MAX = 50_000;

const taskFields = {
  ...payloadFields,
  kind: name.optional(),
  priority: priority.optional(),
  partitionKey: name.optional(),
  runAt: instant.optional(),
  delaySeconds: z.number().min(0).optional(),
  maxAttempts: z.number().int().min(1).optional(),
  backoff: backoff.optional(),
  timeoutSeconds: z.number().positive().optional(),
  idempotencyKey: name.optional(),
  idempotencySeconds: z.number().int().min(1).optional(),
  webhook: z.string().max(1_024).optional(),
  http: httpCall.optional(),
  causedBy: z.string().max(19).optional().openapi({
    description: "Position of the event that caused it, for people",
  }),
  traceParent: z.string().max(1_024).optional(),
  traceState: z.string().max(1_024).optional(),
};

const newTask = z.strictObject(taskFields);
type GivenTask = z.infer<typeof newTask>;

function toNewTask(given: GivenTask, headers: Headers): NewTask {
  const { payload: _payload, payloadBase64: _bytes, http, ...options } = given;
  const trace = readTrace(headers.get("traceparent"), headers.get("tracestate"));
  return {
    ...(given.traceParent === undefined ? trace : {}),
    ...withoutUndefined(options),
    ...(http === undefined ? {} : { http: withoutUndefined(http) }),
    payload: payloadOf(given),
  } as NewTask;
}

const created = z.object({ id: z.string(), queue: z.string() }).openapi("CreatedTask");

const create = endpoint({
  method: "post",
  path: "/v1/tasks",
  tag: TAG,
  summary: "Store a task",
  description:
    "Durable when it is answered. With the header Idempotency-Key, or idempotencyKey in the " +
    "body, the same call again gives the first task; another task under that key is a conflict.",
  act: "task.create",
  headers: z.object({ "idempotency-key": name.optional() }),
  body: z.strictObject({ queue: name, ...taskFields }).openapi("NewTask"),
  verbatim: ["payload"],
  answers: { 201: { description: "It is stored", schema: created } },
  async handle({ caller, scope, body, headers }) {
    const { queue, ...given } = body;
    requireMay(caller, "task.create", queue);
    const header = headers.get("idempotency-key");
    if (header !== null && given.idempotencyKey !== undefined) {
      throw new InvalidInputError("give Idempotency-Key as a header or in the body, not both");
    }
    const task = toNewTask(given, headers);
    const once = header === null ? {} : { idempotencyKey: header };
    const [id] = await scope.enqueue(queue, [{ ...task, ...once }]);
    return { status: 201, body: { id, queue }, headers: { location: `/v1/tasks/${id}` } };
  },
});

const createMany = endpoint({
  method: "post",
  path: "/v1/tasks/batch",
  tag: TAG,
  summary: "Store many tasks of one queue: all of them, in order, or none",
  description:
    "With the header Idempotency-Key each task has the key with its place, such as key/0: the " +
    "same call again gives the first tasks.",
  act: "task.create",
  headers: z.object({ "idempotency-key": name.optional() }),
  body: z
    .strictObject({ queue: name, tasks: z.array(newTask).min(1).max(BATCH_MAX) })
    .openapi("NewTasks"),
  verbatim: ["tasks[].payload"],
  answers: {
    201: {
      description: "They are stored; ids in the order of the tasks",
      schema: z.object({ ids: z.array(z.string()) }),
    },
  },
  async handle({ caller, scope, body, headers }) {
    requireMay(caller, "task.create", body.queue);
    const header = headers.get("idempotency-key");
    const tasks = body.tasks.map((task, index) => {
      try {
        return { ...toNewTask(task, headers), ...keyAt(header, index, task.idempotencyKey) };
      } catch (error) {
        throw error instanceof InvalidInputError
          ? new InvalidInputError(`task ${index}: ${error.message}`)
          : error;
      }
    });
    return { status: 201, body: { ids: await scope.enqueue(body.queue, tasks) } };
  },
});

/** One key for all of a call: each task has its own, made of it and its place. */
function keyAt(
  header: string | null,
  place: number,
  own: string | undefined,
): { readonly idempotencyKey?: string } {
  if (header === null) return {};
  if (own !== undefined) {
    throw new InvalidInputError("give Idempotency-Key as a header or in the task, not both");
  }
  const idempotencyKey = `${header}/${place}`;
  if (name.safeParse(idempotencyKey).success) return { idempotencyKey };
  throw new InvalidInputError("the Idempotency-Key is too long to be that of each task");
}

const page = z.object({ tasks: z.array(taskView), cursor: z.string().optional() });

const list = endpoint({
  method: "get",
  path: "/v1/tasks",
  tag: TAG,
  summary: "List tasks, newest first",
  description:
    "While there may be more, the answer has a cursor for the next page. What is rare among " +
    "millions takes several: each looks at no more than 50,000 tasks, and may have found fewer.",
  act: "task.read",
  query: z.strictObject({
    queue: name.optional(),
    state: taskState.optional(),
    partitionKey: name.optional(),
    cursor: taskId.optional(),
    limit,
  }),
  answers: { 200: { description: "A page", schema: page } },
  async handle({ caller, scope, query }) {
    const { cursor, limit: most = LIMIT, ...filter } = query;
    if (query.queue !== undefined) requireMay(caller, "task.read", query.queue);
    const wanted = {
      ...withoutUndefined(filter),
      ...(cursor === undefined ? {} : { before: cursor }),
      limit: most,
    };
    const { rows, lookedTo } = await scope.tasks(wanted, LOOK_MAX);
    return { status: 200, body: { tasks: rows.map(toTask), cursor: lookedTo } };
  },
});

const get = endpoint({
  method: "get",
  path: "/v1/tasks/:id",
  tag: TAG,
  summary: "Get a task, wherever it is in its life",
  act: "task.read",
  params: idParams,
  answers: { 200: { description: "The task", schema: taskView } },
  async handle({ scope, params }) {
    return { status: 200, body: toTask(await scope.task(params.id)) };
  },
});

const failures = endpoint({
  method: "get",
  path: "/v1/tasks/:id/failures",
  tag: TAG,
  summary: "Every attempt that did not complete the task, oldest first",
  act: "task.read",
  params: idParams,
  answers: {
    200: { description: "Failures", schema: z.object({ failures: z.array(failureView) }) },
  },
  async handle({ scope, params }) {
    return { status: 200, body: { failures: (await scope.failures(params.id)).map(toFailure) } };
  },
});

const why = endpoint({
  method: "get",
  path: "/v1/tasks/:id/why",
  tag: TAG,
  summary: "Why the task does not run, in a sentence",
  act: "task.read",
  params: idParams,
  answers: { 200: { description: "A sentence", schema: z.object({ why: z.string() }) } },
  async handle({ caller, scope, params }) {
    const withPauseReason = caller.scopes.has("admin");
    return { status: 200, body: { why: await scope.why(params.id, { withPauseReason }) } };
  },
});

const cancel = endpoint({
  method: "post",
  path: "/v1/tasks/:id/cancel",
  tag: TAG,
  summary: "Keep a task from running, or tell its handler to stop",
  act: "task.cancel",
  params: idParams,
  body: reasonBody,
  isBodyOptional: true,
  answers: {
    200: {
      description: "cancelled: it never runs; cancelling: it runs, and is told",
      schema: z.object({ id: z.string(), state: z.enum(["cancelled", "cancelling"]) }),
    },
  },
  async handle({ scope, params, body }) {
    const state = await scope.cancel(params.id, body.reason);
    return { status: 200, body: { id: params.id, state } };
  },
});

const retry = endpoint({
  method: "post",
  path: "/v1/tasks/:id/retry",
  tag: TAG,
  summary: "Run now what waits for its time, or give what ended another life",
  act: "task.retry",
  params: idParams,
  answers: { 200: { description: "It is pending", schema: z.object({ id: z.string() }) } },
  async handle({ scope, params }) {
    await scope.retry(params.id);
    return { status: 200, body: { id: params.id } };
  },
});

const outcome = z
  .object({
    id: z.string(),
    state: taskState,
    result: anyJson.optional(),
    reason: z.string().optional(),
  })
  .openapi("TaskOutcome");

function result(limits: ResolvedHttpLimits, waits: Waits): Endpoint {
  const max = limits.waitSecondsMax;
  return endpoint({
    method: "get",
    path: "/v1/tasks/:id/result",
    tag: TAG,
    summary: "How the task ended, waited for if need be",
    act: "task.read",
    params: idParams,
    query: z.strictObject({ waitSeconds: wholeNumber(0, max).optional() }),
    answers: {
      200: { description: "It has ended; only a completed task has a result", schema: outcome },
      202: { description: "It has not ended yet; ask again", schema: outcome },
    },
    async handle({ scope, params: { id }, query: { waitSeconds = 0 }, signal }) {
      const row =
        waitSeconds === 0
          ? await scope.task(id)
          : await waits.during(scope.tenant, () =>
              scope.end(id, { timeoutMs: waitSeconds * 1000, signal }),
            );
      const { state, result: found, reason } = toTask(row) as Record<string, unknown>;
      const status = hasEnded(row) ? 200 : 202;
      return { status, body: { id, state, result: found, reason } };
    },
  });
}

export function taskEndpoints(limits: ResolvedHttpLimits, waits: Waits): Endpoint[] {
  return [create, createMany, list, get, failures, why, cancel, retry, result(limits, waits)];
}
