import { z } from "@hono/zod-openapi";
import { ForbiddenError, InvalidInputError, NotFoundError } from "../../../base/errors.ts";
import { withoutUndefined } from "../../../base/options.ts";
import {
  MIN_INTERVAL_SECONDS_MAX,
  QUEUES_MAX,
  type SubscriptionOptions,
  TTL_SECONDS_MAX,
} from "../../../delivery/notices/subscription.ts";
import type { Subscription } from "../../../delivery/notices/subscription-view.ts";
import { may } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { findSubscription, subscribedQueues } from "../routes/subscriptions.ts";
import { instant } from "../schemas.ts";
import { idParams, TAG } from "./tasks.ts";

/** CodeQ's callers ask for any time, or for the default with 0: longer ones are cut. */
const secondsOf = (seconds: number | undefined, max: number): number | undefined =>
  seconds === undefined || seconds <= 0 ? undefined : Math.min(seconds, max);

const seconds = z.number().int().optional();
const view = z.object({ subscriptionId: z.string(), expiresAt: instant });
const toView = ({ id, expiresAt }: Subscription) => ({ subscriptionId: id, expiresAt });

const MODES = ["fanout", "group", "hash"] as const;

function modeOf(given: string | undefined): (typeof MODES)[number] {
  const mode = MODES.find((one) => one === (given || "fanout"));
  if (mode === undefined) throw new InvalidInputError("invalid deliveryMode");
  return mode;
}

const create = endpoint({
  method: "post",
  path: "/v1/codeq/workers/subscriptions",
  tag: TAG,
  summary: "Be told when tasks of these types wait",
  act: "queue.subscribe",
  errors: "codeq",
  // What CodeQ does not know it ignores.
  body: z.object({
    callbackUrl: z.string().min(1),
    eventTypes: z.array(z.string()).max(QUEUES_MAX).optional(),
    ttlSeconds: seconds,
    deliveryMode: z.string().optional(),
    groupId: z.string().optional(),
    minIntervalSeconds: seconds,
  }),
  answers: { 200: { description: "It is told from now on", schema: view } },
  async handle({ caller, scope, body }) {
    const named = body.eventTypes?.length === 0 ? undefined : body.eventTypes;
    if (named?.some((queue) => !may(caller, "queue.subscribe", queue)) === true) {
      throw new ForbiddenError("event type not allowed");
    }
    const mode = modeOf(body.deliveryMode);
    const group = mode === "group" ? body.groupId || undefined : undefined;
    if (mode === "group" && group === undefined) throw new InvalidInputError("groupId is required");
    const options = withoutUndefined({
      url: body.callbackUrl,
      queues: subscribedQueues(caller, named),
      mode,
      group,
      ttlSeconds: secondsOf(body.ttlSeconds, TTL_SECONDS_MAX),
      minIntervalSeconds: secondsOf(body.minIntervalSeconds, MIN_INTERVAL_SECONDS_MAX),
    }) as SubscriptionOptions;
    const made = await scope.subscriptions.addCodeq(scope.tenant, options);
    return { status: 200, body: toView(made) };
  },
});

const heartbeat = endpoint({
  method: "post",
  path: "/v1/codeq/workers/subscriptions/:id/heartbeat",
  tag: TAG,
  summary: "Let a subscription live on",
  act: "queue.subscribe",
  errors: "codeq",
  params: idParams,
  body: z.object({ ttlSeconds: seconds }),
  isBodyOptional: true,
  answers: { 200: { description: "It lives", schema: view } },
  async handle({ caller, scope, params: { id }, body }) {
    const ttlSeconds = secondsOf(body.ttlSeconds, TTL_SECONDS_MAX);
    try {
      await findSubscription(scope, caller, id);
      const options = ttlSeconds === undefined ? {} : { ttlSeconds };
      const renewed = await scope.subscriptions.renew(scope.tenant, id, options);
      return { status: 200, body: toView(renewed) };
    } catch (error) {
      const isUnknown = error instanceof NotFoundError || error instanceof InvalidInputError;
      throw isUnknown ? new NotFoundError("not-found") : error;
    }
  },
});

export const codeqSubscriptionEndpoints: readonly Endpoint[] = [create, heartbeat];
