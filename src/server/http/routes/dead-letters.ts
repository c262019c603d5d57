import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import type { DeadLetterFilter } from "../../../tasks/dead-letters.ts";
import { type Caller, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { idParams, instant, limit, name, payloadFields, payloadOf, taskId } from "../schemas.ts";
import { taskView, toTask } from "../views.ts";
import { LOOK_MAX } from "./tasks.ts";

const TAG = "Dead letters";
const LIMIT = 50;
const MANY_MAX = 10_000;
const COUNTED_MAX = 100_000;
const MANY = 1_000;

const filterFields = {
  queue: name.optional(),
  cause: z.enum(["attempts_exhausted", "worker_lost", "invalid_payload"]).optional(),
  kind: name.optional(),
  partitionKey: name.optional(),
};

const list = endpoint({
  method: "get",
  path: "/v1/dead-letters",
  tag: TAG,
  summary: "List dead letters, newest first",
  act: "dead.read",
  query: z.strictObject({
    queue: name.optional(),
    partitionKey: name.optional(),
    cursor: taskId.optional(),
    limit,
  }),
  answers: {
    200: {
      description: "A page",
      schema: z.object({ deadLetters: z.array(taskView), cursor: z.string().optional() }),
    },
  },
  async handle({ caller, scope, query }) {
    const { cursor, limit: most = LIMIT, ...filter } = query;
    if (query.queue !== undefined) requireMay(caller, "dead.read", query.queue);
    const wanted = {
      ...withoutUndefined(filter),
      ...(cursor === undefined ? {} : { before: cursor }),
      state: "dead" as const,
      limit: most,
    };
    const { rows, lookedTo } = await scope.tasks(wanted, LOOK_MAX);
    return { status: 200, body: { deadLetters: rows.map(toTask), cursor: lookedTo } };
  },
});

const groupView = z
  .object({
    queue: z.string(),
    cause: z.string(),
    reason: z.string().openapi({ description: "With # for each number" }),
    count: z.number().int(),
    firstAt: instant,
    lastAt: instant,
    ids: z.array(z.string()),
  })
  .openapi("DeadLetterGroup");

const groups = endpoint({
  method: "get",
  path: "/v1/dead-letters/groups",
  tag: TAG,
  summary: "What dead letters died of, the most frequent first",
  description: "Of the newest 10,000. `isCut` tells that there are more.",
  act: "dead.read",
  query: z.strictObject(filterFields),
  answers: {
    200: {
      description: "Groups",
      schema: z.object({ groups: z.array(groupView), isCut: z.boolean() }),
    },
  },
  async handle({ caller, scope, query }) {
    if (query.queue !== undefined) requireMay(caller, "dead.read", query.queue);
    return { status: 200, body: await scope.deadLetterGroups(withoutUndefined(query)) };
  },
});

const edit = endpoint({
  method: "put",
  path: "/v1/dead-letters/:id/payload",
  tag: TAG,
  summary: "Replace the payload of a dead letter, to redrive it afterwards",
  act: "dead.redrive",
  params: idParams,
  body: z.strictObject(payloadFields).openapi("Payload"),
  verbatim: ["payload"],
  answers: { 200: { description: "It is replaced", schema: z.object({ id: z.string() }) } },
  async handle({ scope, params, body }) {
    if (body.payload === undefined && body.payloadBase64 === undefined) {
      throw new InvalidInputError("give payload or payloadBase64");
    }
    await scope.editDeadLetter(params.id, payloadOf(body), body.contentType);
    return { status: 200, body: { id: params.id } };
  },
});

const count = endpoint({
  method: "get",
  path: "/v1/dead-letters/count",
  tag: TAG,
  summary: "How many dead letters there are of a kind, counted up to 100,000",
  act: "dead.read",
  query: z.strictObject(filterFields),
  answers: {
    200: {
      description: "The number, and the instant that it was true: for diedBefore",
      schema: z.object({ count: z.number().int(), isCut: z.boolean(), at: instant }),
    },
  },
  async handle({ caller, scope, query }) {
    if (query.queue !== undefined) requireMay(caller, "dead.read", query.queue);
    const found = await scope.countDead(withoutUndefined(query), COUNTED_MAX);
    return { status: 200, body: { ...found, isCut: found.count === COUNTED_MAX } };
  },
});

const which = z
  .strictObject({
    all: z.literal(true).optional().openapi({ description: "Needed where nothing else is given" }),
    ids: z.array(taskId).min(1).max(MANY).optional(),
    ...filterFields,
    diedBefore: instant.optional().openapi({
      description: "So that what dies again is not redriven again and again",
    }),
    limit: z.number().int().min(1).max(MANY_MAX).optional(),
  })
  .openapi("DeadLetterFilter");

interface Many {
  readonly filter: Omit<DeadLetterFilter, "tenant" | "queues">;
  readonly limit: number;
}

function manyOf(
  caller: Caller,
  act: "dead.redrive" | "dead.purge",
  given: z.infer<typeof which>,
): Many {
  const { all, limit: most = MANY, diedBefore, ...rest } = given;
  const named = withoutUndefined(rest);
  const filter = {
    ...named,
    ...(diedBefore === undefined ? {} : { diedBefore: new Date(diedBefore) }),
  };
  if (all !== true && Object.keys(named).length === 0) {
    throw new InvalidInputError('say which: ids, queue, cause, kind, partitionKey, or "all": true');
  }
  if (rest.queue !== undefined) requireMay(caller, act, rest.queue);
  return { filter, limit: most };
}

const redrive = endpoint({
  method: "post",
  path: "/v1/dead-letters/redrive",
  tag: TAG,
  summary: "Run dead letters again with all their attempts",
  description: "At most `limit` of them; while hasMore is true, call it again.",
  act: "dead.redrive",
  body: which,
  answers: {
    200: {
      description: "How many run again",
      schema: z.object({ redriven: z.number().int(), hasMore: z.boolean() }),
    },
  },
  async handle({ caller, scope, body }) {
    const { filter, limit: most } = manyOf(caller, "dead.redrive", body);
    const redriven = await scope.redrive(filter, most);
    return { status: 200, body: { redriven, hasMore: redriven === most } };
  },
});

const purge = endpoint({
  method: "post",
  path: "/v1/dead-letters/purge",
  tag: TAG,
  summary: "Delete dead letters for good",
  description: "At most `limit` of them; while hasMore is true, call it again.",
  act: "dead.purge",
  body: which,
  answers: {
    200: {
      description: "How many are gone",
      schema: z.object({ purged: z.number().int(), hasMore: z.boolean() }),
    },
  },
  async handle({ caller, scope, body }) {
    const { filter, limit: most } = manyOf(caller, "dead.purge", body);
    const purged = await scope.purge(filter, most);
    return { status: 200, body: { purged, hasMore: purged === most } };
  },
});

export const deadLetterEndpoints: readonly Endpoint[] = [list, groups, count, edit, redrive, purge];
