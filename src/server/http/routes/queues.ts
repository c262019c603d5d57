import { z } from "@hono/zod-openapi";
import { InvalidInputError, NotFoundError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import { type HttpQueueOptions, httpQueue } from "../../../tasks/http-queue.ts";
import type { LimitChanges } from "../../../tasks/limits.ts";
import type { QueueView } from "../../../tasks/queue-admin.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Caller, may, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { backoff, httpCall, name, nameParams, priority, reasonBody } from "../schemas.ts";

const TAG = "Queues";

const rate = z.object({ count: z.number().int(), seconds: z.number() });
export const queueView = z
  .object({
    name: z.string(),
    isPaused: z.boolean(),
    pauseReason: z.string().optional(),
    limits: z.object({
      concurrency: z.number().int().nullable(),
      rate: rate.nullable(),
      keyRate: rate.nullable(),
    }),
    kind: z.literal("http").optional(),
    introducedBy: z.string().optional().openapi({
      description: "The tenant that named it first, while nobody has defined it",
    }),
    keySpace: z.string().optional(),
    depths: z.record(z.string(), z.number().int()).optional(),
    running: z.number().int().optional(),
    dead: z.number().int().optional().openapi({ description: "Counted up to 10,000" }),
    isDeadCut: z.boolean().optional().openapi({
      description: "Whether counting ended there: there may be more",
    }),
    oldestPendingSeconds: z.number().optional(),
  })
  .openapi("Queue", {
    description: "Counts are of all tenants; they and the reason of a pause are for admins only",
  });

const isAdmin = ({ scopes }: Caller): boolean => scopes.has("admin");

/** A name that another tenant made up is that tenant's, until somebody defines the queue. */
function maySee(caller: Caller, { name, introducedBy }: QueueView): boolean {
  if (!may(caller, "queue.read", name)) return false;
  return isAdmin(caller) || introducedBy === undefined || introducedBy === caller.tenant;
}

/** How much other tenants have in a queue, and what people say of it, is not for everybody. */
function toView(queue: QueueView, caller: Caller): object {
  if (isAdmin(caller)) return { ...queue };
  const { name, isPaused, limits, kind, introducedBy } = queue;
  return { name, isPaused, limits, kind, introducedBy };
}

async function find(mill: Tidemill, caller: Caller, name: string): Promise<object> {
  const found = (await mill.queues.list()).find((queue) => queue.name === name);
  if (found === undefined || !maySee(caller, found)) {
    throw new NotFoundError(`there is no queue ${JSON.stringify(name)}`);
  }
  return toView(found, caller);
}

function reading(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/queues",
      tag: TAG,
      summary: "List queues, by name",
      act: "queue.read",
      answers: {
        200: { description: "Queues", schema: z.object({ queues: z.array(queueView) }) },
      },
      async handle({ caller }) {
        const all = await mill.queues.list();
        const queues = all.filter((one) => maySee(caller, one));
        return { status: 200, body: { queues: queues.map((one) => toView(one, caller)) } };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/queues/:name",
      tag: TAG,
      summary: "Get a queue",
      act: "queue.read",
      params: nameParams,
      answers: { 200: { description: "The queue", schema: queueView } },
      async handle({ caller, params }) {
        return { status: 200, body: await find(mill, caller, params.name) };
      },
    }),
  ];
}

const newRate = z.strictObject({
  count: z.number().int().min(1),
  seconds: z.number().positive().optional(),
});

const limitChanges = z
  .strictObject({
    concurrency: z.number().int().min(0).nullable().optional(),
    rate: newRate.nullable().optional(),
    keyRate: newRate.nullable().optional(),
  })
  .openapi("LimitChanges", { description: "null lifts a limit; one that is left out stays" });

function limiting(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "put",
      path: "/v1/queues/:name/limits",
      tag: TAG,
      summary: "Change limits of a queue",
      act: "queue.change",
      params: nameParams,
      body: limitChanges,
      answers: { 200: { description: "The queue", schema: queueView } },
      async handle({ caller, params: { name }, body }) {
        requireMay(caller, "queue.change", name);
        await mill.queues.setLimits(name, withoutUndefined(body) as LimitChanges);
        return { status: 200, body: await find(mill, caller, name) };
      },
    }),
    endpoint({
      method: "delete",
      path: "/v1/queues/:name/limits",
      tag: TAG,
      summary: "Let the limits of the definition hold again",
      act: "queue.change",
      params: nameParams,
      answers: { 200: { description: "The queue", schema: queueView } },
      async handle({ caller, params: { name } }) {
        requireMay(caller, "queue.change", name);
        await mill.queues.resetLimits(name);
        return { status: 200, body: await find(mill, caller, name) };
      },
    }),
  ];
}

const httpDefinition = z
  .strictObject({
    http: httpCall
      .extend({
        resultHeaders: z.array(z.string()).optional(),
        resultBytesMax: z.number().int().min(0).optional(),
      })
      .optional(),
    priority: priority.optional(),
    maxAttempts: z.number().int().min(1).optional(),
    backoff: backoff.optional(),
    timeoutSeconds: z.number().positive().optional(),
    keySpace: name.optional(),
  })
  .openapi("HttpQueueDefinition");

async function define(
  mill: Tidemill,
  queue: string,
  body: z.infer<typeof httpDefinition>,
): Promise<"made" | "known"> {
  const { http, ...others } = body;
  if (http !== undefined) {
    const options = { ...withoutUndefined(others), http: withoutUndefined(http) };
    return await mill.queues.define(httpQueue(queue, options as HttpQueueOptions));
  }
  if (Object.keys(withoutUndefined(others)).length === 0) return await mill.queues.ensure(queue);
  throw new InvalidInputError("settings of a queue are given with http, or in the code of workers");
}

export function queueEndpoints(mill: Tidemill): Endpoint[] {
  return [
    ...reading(mill),
    endpoint({
      method: "put",
      path: "/v1/queues/:name",
      tag: TAG,
      summary: "Register a queue with default settings, unless it is there; or define one of calls",
      description:
        "With http, its tasks are HTTP calls, made by servers and workers with httpJobs; what is " +
        "stored of the queue becomes what is given. Without, what is there stays.",
      act: "queue.change",
      params: nameParams,
      body: httpDefinition,
      isBodyOptional: true,
      answers: {
        200: { description: "It was there", schema: queueView },
        201: { description: "It is there now", schema: queueView },
      },
      async handle({ caller, params: { name }, body }) {
        requireMay(caller, "queue.change", name);
        const status = (await define(mill, name, body)) === "made" ? 201 : 200;
        return { status, body: await find(mill, caller, name) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/queues/:name/pause",
      tag: TAG,
      summary: "Let nothing more of the queue be claimed",
      act: "queue.change",
      params: nameParams,
      body: reasonBody,
      isBodyOptional: true,
      answers: { 200: { description: "The queue", schema: queueView } },
      async handle({ caller, params: { name }, body: { reason } }) {
        requireMay(caller, "queue.change", name);
        await mill.queues.pause(name, reason === undefined ? {} : { reason });
        return { status: 200, body: await find(mill, caller, name) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/queues/:name/resume",
      tag: TAG,
      summary: "Let it go on",
      act: "queue.change",
      params: nameParams,
      answers: { 200: { description: "The queue", schema: queueView } },
      async handle({ caller, params: { name } }) {
        requireMay(caller, "queue.change", name);
        await mill.queues.resume(name);
        return { status: 200, body: await find(mill, caller, name) };
      },
    }),
    ...limiting(mill),
  ];
}
