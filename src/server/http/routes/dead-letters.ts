import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import type { DeadLetterFilter } from "../../../tasks/dead-letters.ts";
import { type Caller, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { idParams, instant, limit, name, payloadFields, payloadOf, taskId } from "../schemas.ts";
import { taskView, toTask } from "../views.ts";

const TAG = "Dead letters";
const LIMIT = 50;
const MANY_MAX = 10_000;
const MANY = 1_000;

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
    const rows = await scope.tasks({
      ...withoutUndefined(filter),
      ...(cursor === undefined ? {} : { before: cursor }),
      state: "dead",
      limit: most,
    });
    const last = rows.length < most ? undefined : rows.at(-1)?.id;
    return { status: 200, body: { deadLetters: rows.map(toTask), cursor: last } };
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
  query: z.strictObject({ queue: name.optional() }),
  answers: {
    200: {
      description: "Groups",
      schema: z.object({ groups: z.array(groupView), isCut: z.boolean() }),
    },
  },
  async handle({ caller, scope, query: { queue } }) {
    if (queue !== undefined) requireMay(caller, "dead.read", queue);
    return { status: 200, body: await scope.deadLetterGroups(queue) };
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

const which = z
  .strictObject({
    all: z.literal(true).optional().openapi({ description: "Needed where nothing else is given" }),
    ids: z.array(taskId).min(1).max(MANY).optional(),
    queue: name.optional(),
    cause: z.enum(["attempts_exhausted", "worker_lost", "invalid_payload"]).optional(),
    kind: name.optional(),
    partitionKey: name.optional(),
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
  const { all, limit: most = MANY, ...rest } = given;
  const filter = withoutUndefined(rest);
  if (all !== true && Object.keys(filter).length === 0) {
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

export const deadLetterEndpoints: readonly Endpoint[] = [list, groups, edit, redrive, purge];
