import { z } from "@hono/zod-openapi";
import { InvalidInputError, LimitError, NotFoundError } from "../../../base/errors.ts";
import type { QueueView } from "../../../tasks/queue-admin.ts";
import { requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { deleteTopic, putTopic, readTopic, type TopicRow } from "./sql/topics.ts";
import { type CodeqContext, TAG } from "./tasks.ts";

const TOPICS_MAX = 1_000;
const DAY_MS = 86_400_000;
const CLEANUP = 1_000;
const CLEANUP_MAX = 10_000;

const queueStats = z
  .object({
    command: z.string(),
    ready: z.number().int(),
    delayed: z.number().int(),
    inProgress: z.number().int(),
    dlq: z.number().int(),
  })
  .openapi("CodeqQueue");

type Stats = z.infer<typeof queueStats>;

async function statsOf({ mill }: CodeqContext, queue: QueueView): Promise<Stats> {
  const live = Object.values(queue.depths).reduce((sum, depth) => sum + depth, 0);
  const delayed = await mill.queues.delayed(queue.name);
  const ready = Math.max(0, live - queue.running - delayed);
  return { command: queue.name, ready, delayed, inProgress: queue.running, dlq: queue.dead };
}

function queues(context: CodeqContext): Endpoint[] {
  const { mill } = context;
  return [
    endpoint({
      method: "get",
      path: "/v1/codeq/admin/queues",
      tag: TAG,
      summary: "Counts of every queue",
      act: "cluster.read",
      errors: "codeq",
      answers: {
        200: {
          description: "Counts by command and place",
          schema: z.record(z.string(), z.number().int()),
        },
      },
      async handle() {
        const counts: [string, number][] = [];
        for (const queue of await mill.queues.list()) {
          const { command, ...places } = await statsOf(context, queue);
          for (const [place, count] of Object.entries(places)) {
            counts.push([`${command}:${place}`, count]);
          }
        }
        return { status: 200, body: Object.fromEntries(counts) };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/codeq/admin/queues/:command",
      tag: TAG,
      summary: "Counts of a queue",
      act: "cluster.read",
      errors: "codeq",
      params: z.object({ command: z.string() }),
      answers: { 200: { description: "Counts", schema: queueStats } },
      async handle({ params: { command } }) {
        const found = (await mill.queues.list()).find(({ name }) => name === command);
        // A command without a task is an empty queue there.
        if (found !== undefined) return { status: 200, body: await statsOf(context, found) };
        const none = { command, ready: 0, delayed: 0, inProgress: 0, dlq: 0 };
        return { status: 200, body: none };
      },
    }),
  ];
}

function cleanup(): Endpoint {
  return endpoint({
    method: "post",
    path: "/v1/codeq/admin/tasks/cleanup",
    tag: TAG,
    summary: "Delete tasks of the tenant that ended before an instant",
    act: "cluster.change",
    errors: "codeq",
    body: z.object({
      limit: z.number().int().min(1).max(CLEANUP_MAX).optional(),
      before: z.iso.datetime({ offset: true }).optional(),
    }),
    isBodyOptional: true,
    answers: {
      200: {
        description: "How many are gone",
        schema: z.object({
          deleted: z.number().int(),
          before: z.string(),
          limit: z.number().int(),
        }),
      },
    },
    async handle({ scope, body: { limit = CLEANUP, before } }) {
      const given = before === undefined ? { olderThanMs: DAY_MS } : { before: new Date(before) };
      const { deleted, edge } = await scope.forgetEnded(given, limit);
      return { status: 200, body: { deleted, before: edge, limit } };
    },
  });
}

const policy = z
  .strictObject({
    priorityTiers: z.array(z.number()).optional(),
    maxAttempts: z.number().optional(),
    deadLetterTopicRef: z.string().optional(),
    retentionSeconds: z.number().optional(),
    maxConsumers: z.number().optional(),
  })
  .openapi("CodeqTopicPolicy");

type Policy = z.infer<typeof policy>;

const inRange = (value: number | undefined, min: number, max: number): boolean =>
  value === undefined || (Number.isInteger(value) && value >= min && value <= max);

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** The field that cannot be, if there is one. */
function wrongField(name: string, given: Policy): keyof Policy | undefined {
  const { priorityTiers: tiers, deadLetterTopicRef: ref } = given;
  const isTiers =
    tiers === undefined ||
    (tiers.length >= 1 && tiers.length <= 10 && tiers.every((tier) => inRange(tier, 0, 10)));
  if (!isTiers) return "priorityTiers";
  if (!inRange(given.maxAttempts, 1, 100)) return "maxAttempts";
  if (ref !== undefined && (!LABEL.test(ref) || ref === name)) return "deadLetterTopicRef";
  if (!inRange(given.retentionSeconds, 0, Number.MAX_SAFE_INTEGER)) return "retentionSeconds";
  return inRange(given.maxConsumers, 0, 10_000) ? undefined : "maxConsumers";
}

const toTopic = ({ name, policy: stored, version }: TopicRow): object => ({
  name,
  version,
  policy: stored,
});

const nameParams = z.object({ name: z.string() });
const topicView = z.object({ name: z.string(), version: z.number().int(), policy });

function putting({ tenants }: CodeqContext): Endpoint {
  return endpoint({
    method: "put",
    path: "/v1/codeq/admin/topics/:name",
    tag: TAG,
    summary: "Set the policy of a topic",
    act: "queue.change",
    errors: "codeq",
    params: nameParams,
    body: policy,
    answers: {
      200: { description: "It was there", schema: topicView },
      201: { description: "It is there now", schema: topicView },
      422: { description: "A field that cannot be" },
    },
    async handle({ caller, params: { name }, body }) {
      requireMay(caller, "queue.change", name);
      const field = LABEL.test(name) ? wrongField(name, body) : "name";
      if (field !== undefined) return { status: 422, body: { error: `invalid ${field}`, field } };
      const { tenant } = caller;
      const row = await putTopic(tenants.store(tenant), tenant, { name, policy: body }, TOPICS_MAX);
      if (row === undefined) throw new LimitError(`a tenant has at most ${TOPICS_MAX} topics`);
      return { status: row.is_new ? 201 : 200, body: toTopic(row) };
    },
  });
}

function topics(context: CodeqContext): Endpoint[] {
  const { tenants } = context;
  return [
    putting(context),
    endpoint({
      method: "get",
      path: "/v1/codeq/admin/topics/:name",
      tag: TAG,
      summary: "Get the policy of a topic",
      act: "queue.change",
      errors: "codeq",
      params: nameParams,
      answers: { 200: { description: "The topic", schema: topicView } },
      async handle({ caller: { tenant }, params: { name } }) {
        const row = await readTopic(tenants.store(tenant), tenant, name);
        if (row === undefined) throw new NotFoundError("not-found");
        return { status: 200, body: toTopic(row) };
      },
    }),
    endpoint({
      method: "delete",
      path: "/v1/codeq/admin/topics/:name",
      tag: TAG,
      summary: "Forget the policy of a topic; its tasks stay",
      act: "queue.change",
      errors: "codeq",
      params: nameParams,
      query: z.object({ deletionPolicy: z.string().optional() }),
      answers: { 204: { description: "It is gone" } },
      async handle({ caller, params: { name }, query }) {
        requireMay(caller, "queue.change", name);
        if (query.deletionPolicy !== "Delete") {
          throw new InvalidInputError("deletionPolicy must be Delete");
        }
        const { tenant } = caller;
        if (!(await deleteTopic(tenants.store(tenant), tenant, name))) {
          throw new NotFoundError("not-found");
        }
        return { status: 204 };
      },
    }),
  ];
}

export function codeqAdminEndpoints(context: CodeqContext): Endpoint[] {
  return [...queues(context), cleanup(), ...topics(context)];
}
