import { z } from "@hono/zod-openapi";
import { NotFoundError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import {
  MIN_INTERVAL_SECONDS_MAX,
  QUEUES_MAX,
  type SubscriptionOptions,
  TTL_SECONDS_MAX,
} from "../../../delivery/notices/subscription.ts";
import type { Subscription } from "../../../delivery/notices/subscription-view.ts";
import type { TenantScope } from "../../../worker/tenant-scope.ts";
import { type Caller, may, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant, name } from "../schemas.ts";

const TAG = "Subscriptions";
/** Those of the own process may be told more often: here somebody else calls. */
const MIN_INTERVAL_SECONDS_MIN = 1;

const idParams = z.strictObject({ id: z.uuid() });
const ttlSeconds = z.number().min(1).max(TTL_SECONDS_MAX).optional();

const subscriptionView = z
  .object({
    id: z.string(),
    tenant: z.string(),
    url: z.string(),
    queues: z.array(z.string()).optional(),
    mode: z.enum(["fanout", "group", "hash"]),
    group: z.string().optional(),
    format: z.enum(["standard", "codeq"]),
    ttlSeconds: z.number(),
    minIntervalSeconds: z.number(),
    expiresAt: instant,
    state: z.enum(["active", "failing"]),
    failingSince: instant.optional(),
    failures: z.number().int(),
    toldAt: instant.optional(),
    lastStatus: z.number().int().optional(),
    lastError: z.string().optional(),
    createdAt: instant,
  })
  .openapi("Subscription");

/**
 * The queues of a new subscription. Of those that the token is for when none is named; undefined
 * for all of the tenant. Throws where the token is not for one of them.
 */
export function subscribedQueues(
  caller: Caller,
  named: readonly string[] | undefined,
): readonly string[] | undefined {
  for (const queue of named ?? []) requireMay(caller, "queue.subscribe", queue);
  if (named !== undefined) return named;
  return caller.queues === "all" ? undefined : [...caller.queues];
}

/** Whether the caller is for everything that it is told of. */
function isFor(caller: Caller, { queues }: Subscription): boolean {
  if (queues === undefined) return may(caller, "queue.subscribe");
  return queues.every((queue) => may(caller, "queue.subscribe", queue));
}

/** What the caller is not for is as unknown as what does not exist. */
export async function findSubscription(
  { subscriptions, tenant }: TenantScope,
  caller: Caller,
  id: string,
): Promise<Subscription> {
  const found = await subscriptions.get(tenant, id);
  if (isFor(caller, found)) return found;
  throw new NotFoundError(`there is no subscription ${id} of this tenant, or it has ended`);
}

const list = endpoint({
  method: "get",
  path: "/v1/subscriptions",
  tag: TAG,
  summary: "Who is told that work waits, oldest first",
  description: "Those that have not ended, of queues that the token is for; never their secrets.",
  act: "queue.subscribe",
  answers: {
    200: { description: "All", schema: z.object({ subscriptions: z.array(subscriptionView) }) },
  },
  async handle({ caller, scope }) {
    const all = await scope.subscriptions.list(scope.tenant);
    return { status: 200, body: { subscriptions: all.filter((one) => isFor(caller, one)) } };
  },
});

const get = endpoint({
  method: "get",
  path: "/v1/subscriptions/:id",
  tag: TAG,
  summary: "Get a subscription",
  act: "queue.subscribe",
  params: idParams,
  answers: { 200: { description: "The subscription", schema: subscriptionView } },
  async handle({ caller, scope, params }) {
    return { status: 200, body: await findSubscription(scope, caller, params.id) };
  },
});

const add = endpoint({
  method: "post",
  path: "/v1/subscriptions",
  tag: TAG,
  summary: "Be told when work waits, until it ends or is removed",
  description:
    "Each call makes another one. The secret with which its notices are signed is in the answer, " +
    "and nowhere else later.",
  act: "queue.subscribe",
  body: z
    .strictObject({
      url: z.string().min(1).max(1_024),
      queues: z.array(name).min(1).max(QUEUES_MAX).optional(),
      mode: z.enum(["fanout", "group", "hash"]).optional(),
      group: z.string().min(1).max(200).optional(),
      ttlSeconds,
      minIntervalSeconds: z
        .number()
        .min(MIN_INTERVAL_SECONDS_MIN)
        .max(MIN_INTERVAL_SECONDS_MAX)
        .optional(),
      secret: z.string().min(1).max(256).optional(),
    })
    .openapi("NewSubscription"),
  answers: {
    201: {
      description: "The subscription",
      schema: z.object({ subscription: subscriptionView, secret: z.string() }),
    },
  },
  async handle({ caller, scope, body }) {
    const queues = subscribedQueues(caller, body.queues);
    const options = withoutUndefined({ ...body, queues }) as SubscriptionOptions;
    const { subscription, secret } = await scope.subscriptions.add(scope.tenant, options);
    return { status: 201, body: { subscription, secret: secret.reveal() } };
  },
});

const renew = endpoint({
  method: "post",
  path: "/v1/subscriptions/:id/renew",
  tag: TAG,
  summary: "Let a subscription live on from now",
  act: "queue.subscribe",
  params: idParams,
  body: z.strictObject({ ttlSeconds }),
  isBodyOptional: true,
  answers: { 200: { description: "The subscription", schema: subscriptionView } },
  async handle({ caller, scope, params: { id }, body }) {
    await findSubscription(scope, caller, id);
    const renewed = await scope.subscriptions.renew(scope.tenant, id, withoutUndefined(body));
    return { status: 200, body: renewed };
  },
});

const remove = endpoint({
  method: "delete",
  path: "/v1/subscriptions/:id",
  tag: TAG,
  summary: "End a subscription now",
  act: "queue.subscribe",
  params: idParams,
  answers: { 204: { description: "It is gone" } },
  async handle({ caller, scope, params: { id } }) {
    await findSubscription(scope, caller, id);
    await scope.subscriptions.remove(scope.tenant, id);
    return { status: 204 };
  },
});

export const subscriptionEndpoints: readonly Endpoint[] = [list, get, add, renew, remove];
