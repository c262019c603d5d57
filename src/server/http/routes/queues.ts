import { z } from "@hono/zod-openapi";
import { NotFoundError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import type { LimitChanges } from "../../../tasks/limits.ts";
import type { QueueView } from "../../../tasks/queue-admin.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Caller, may, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { nameParams, reasonBody } from "../schemas.ts";

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
    keySpace: z.string().optional(),
    depths: z.record(z.string(), z.number().int()).optional(),
    running: z.number().int().optional(),
    dead: z.number().int().optional(),
    oldestPendingSeconds: z.number().optional(),
  })
  .openapi("Queue", { description: "Counts are of all tenants, and for admins only" });

/** How much other tenants have in a queue is not for everybody. */
function toView(queue: QueueView, { scopes }: Caller): object {
  if (scopes.has("admin")) return { ...queue };
  const { name, isPaused, pauseReason, limits } = queue;
  return { name, isPaused, pauseReason, limits };
}

async function find(mill: Tidemill, caller: Caller, name: string): Promise<object> {
  const found = (await mill.queues.list()).find((queue) => queue.name === name);
  if (found === undefined || !may(caller, "queue.read", name)) {
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
        const queues = all.filter(({ name }) => may(caller, "queue.read", name));
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

export function queueEndpoints(mill: Tidemill): Endpoint[] {
  return [
    ...reading(mill),
    endpoint({
      method: "put",
      path: "/v1/queues/:name",
      tag: TAG,
      summary: "Register a queue with default settings, unless it is there",
      act: "queue.change",
      params: nameParams,
      answers: {
        200: { description: "It was there", schema: queueView },
        201: { description: "It is there now", schema: queueView },
      },
      async handle({ caller, params: { name } }) {
        requireMay(caller, "queue.change", name);
        const status = (await mill.queues.ensure(name)) === "made" ? 201 : 200;
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
