import { z } from "@hono/zod-openapi";
import { JsonText } from "../../../base/json-text.ts";
import { withoutUndefined } from "../../../base/options.ts";
import type { Schedule, ScheduleOptions } from "../../../schedules/schedule.ts";
import { type Caller, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { anyJson, httpCall, limit, name, nameParams, priority, wholeNumber } from "../schemas.ts";
import { firingView, scheduleView, toFiringView } from "../views.ts";

const TAG = "Schedules";
const LIMIT = 100;

/** Why it cannot fire may be about the database, which is for those who run it. */
function toView(schedule: Schedule, { scopes }: Caller): object {
  if (schedule.lastError === undefined || scopes.has("admin")) return { ...schedule };
  return { ...schedule, lastError: "it could not be fired; the operator knows why" };
}

const list = endpoint({
  method: "get",
  path: "/v1/schedules",
  tag: TAG,
  summary: "List schedules, by name",
  description: "While there are more, the answer has a cursor for the next page.",
  act: "schedule.read",
  query: z.strictObject({ cursor: name.optional(), limit }),
  answers: {
    200: {
      description: "A page",
      schema: z.object({ schedules: z.array(scheduleView), cursor: z.string().optional() }),
    },
  },
  async handle({ caller, scope, query: { cursor, limit: most = LIMIT } }) {
    const found = await scope.schedules(cursor, most);
    const schedules = found.map((one) => toView(one, caller));
    const last = found.length < most ? undefined : found.at(-1)?.name;
    return { status: 200, body: { schedules, cursor: last } };
  },
});

const get = endpoint({
  method: "get",
  path: "/v1/schedules/:name",
  tag: TAG,
  summary: "Get a schedule",
  act: "schedule.read",
  params: nameParams,
  answers: { 200: { description: "The schedule", schema: scheduleView } },
  async handle({ caller, scope, params }) {
    return { status: 200, body: toView(await scope.schedule(params.name), caller) };
  },
});

const definition = z
  .strictObject({
    cron: z.string().min(1).max(256).openapi({ example: "0 3 * * *" }),
    timeZone: z.string().min(1).max(256).optional(),
    queue: name,
    payload: anyJson.optional(),
    catchUp: z.enum(["skip", "once", "all"]).optional(),
    catchUpMax: z.number().int().min(1).optional(),
    kind: name.optional(),
    priority: priority.optional(),
    partitionKey: name.optional(),
    maxAttempts: z.number().int().min(1).optional(),
    timeoutSeconds: z.number().positive().optional(),
    webhook: z.string().max(1_024).optional(),
    http: httpCall.optional(),
  })
  .openapi("ScheduleDefinition");

const put = endpoint({
  method: "put",
  path: "/v1/schedules/:name",
  tag: TAG,
  summary: "Create a schedule, or make it what is given",
  act: "schedule.change",
  params: nameParams,
  body: definition,
  verbatim: ["payload"],
  answers: { 200: { description: "The schedule", schema: scheduleView } },
  async handle({ caller, scope, params, body }) {
    requireMay(caller, "schedule.change", body.queue);
    const payload = body.payload instanceof JsonText ? body.payload : new JsonText("null");
    const options = { ...withoutUndefined(body), payload } as ScheduleOptions;
    return { status: 200, body: toView(await scope.putSchedule(params.name, options), caller) };
  },
});

const remove = endpoint({
  method: "delete",
  path: "/v1/schedules/:name",
  tag: TAG,
  summary: "Forget a schedule; tasks that it enqueued stay",
  act: "schedule.change",
  params: nameParams,
  answers: { 204: { description: "It is gone" } },
  async handle({ scope, params }) {
    await scope.removeSchedule(params.name);
    return { status: 204 };
  },
});

const run = endpoint({
  method: "post",
  path: "/v1/schedules/:name/run",
  tag: TAG,
  summary: "Enqueue the task of a schedule once, now",
  act: "schedule.change",
  params: nameParams,
  answers: {
    201: {
      description: "The task",
      schema: z.object({ id: z.string(), queue: z.string() }),
    },
  },
  async handle({ scope, params }) {
    const { id, queue } = await scope.runSchedule(params.name);
    return { status: 201, body: { id, queue }, headers: { location: `/v1/tasks/${id}` } };
  },
});

const pause = endpoint({
  method: "post",
  path: "/v1/schedules/:name/pause",
  tag: TAG,
  summary: "Fire no tick until it is resumed",
  act: "schedule.change",
  params: nameParams,
  answers: { 200: { description: "The schedule", schema: scheduleView } },
  async handle({ caller, scope, params }) {
    await scope.pauseSchedule(params.name);
    return { status: 200, body: toView(await scope.schedule(params.name), caller) };
  },
});

const resume = endpoint({
  method: "post",
  path: "/v1/schedules/:name/resume",
  tag: TAG,
  summary: "Go on with the next tick",
  act: "schedule.change",
  params: nameParams,
  body: z.strictObject({ catchUp: z.boolean().optional() }),
  isBodyOptional: true,
  answers: { 200: { description: "The schedule", schema: scheduleView } },
  async handle({ caller, scope, params, body }) {
    await scope.resumeSchedule(params.name, { catchUp: body.catchUp === true });
    return { status: 200, body: toView(await scope.schedule(params.name), caller) };
  },
});

const firings = endpoint({
  method: "get",
  path: "/v1/schedules/:name/firings",
  tag: TAG,
  summary: "The latest firings, the last one first",
  act: "schedule.read",
  params: nameParams,
  query: z.strictObject({ limit: wholeNumber(1, 1_000).optional() }),
  answers: {
    200: { description: "Firings", schema: z.object({ firings: z.array(firingView) }) },
  },
  async handle({ scope, params, query: { limit: most = LIMIT } }) {
    const found = await scope.firings(params.name, most);
    return { status: 200, body: { firings: found.map(toFiringView) } };
  },
});

export const scheduleEndpoints: readonly Endpoint[] = [
  list,
  get,
  put,
  remove,
  run,
  pause,
  resume,
  firings,
];
