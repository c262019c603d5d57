import { z } from "@hono/zod-openapi";
import { withoutUndefined } from "../../../base/options.ts";
import type { EndpointOptions } from "../../../delivery/endpoint.ts";
import type {
  ListDeliveriesOptions,
  RedeliverFilter,
  RotateOptions,
} from "../../../delivery/webhook-admin.ts";
import { type Act, type Caller, requireMay } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { limit, taskId } from "../schemas.ts";
import {
  attemptView,
  deliveryState,
  deliveryView,
  endpointView,
  toAttemptView,
  webhookType,
} from "../webhook-views.ts";

const TAG = "Webhooks";
const ENDPOINTS_MAX = 100;

const endpointId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, "is no id of an endpoint");
const endpointParams = z.strictObject({ id: endpointId });
const deliveryId = z.uuid();
const secret = z.string().min(1).max(256);

/** They tell of tasks of all queues, so a caller for some of them may not have them. */
const requireAll = (caller: Caller, act: Act): void => requireMay(caller, act);

const list = endpoint({
  method: "get",
  path: "/v1/webhooks",
  tag: TAG,
  summary: "Endpoints, by id; never their secrets",
  act: "webhook.read",
  answers: {
    200: { description: "All", schema: z.object({ endpoints: z.array(endpointView) }) },
  },
  async handle({ caller, scope }) {
    requireAll(caller, "webhook.read");
    return { status: 200, body: { endpoints: await scope.webhooks.list(scope.tenant) } };
  },
});

const get = endpoint({
  method: "get",
  path: "/v1/webhooks/:id",
  tag: TAG,
  summary: "Get an endpoint",
  act: "webhook.read",
  params: endpointParams,
  answers: { 200: { description: "The endpoint", schema: endpointView } },
  async handle({ caller, scope, params }) {
    requireAll(caller, "webhook.read");
    return { status: 200, body: await scope.webhooks.get(scope.tenant, params.id) };
  },
});

const withSecret = z.object({ endpoint: endpointView, secret: z.string().optional() });

const put = endpoint({
  method: "put",
  path: "/v1/webhooks/:id",
  tag: TAG,
  summary: "Make an endpoint, or make it what is given",
  description: "The secret of a new one is in the answer, and nowhere else later.",
  act: "webhook.change",
  params: endpointParams,
  body: z
    .strictObject({
      url: z.string().min(1).max(1_024).optional(),
      description: z.string().min(1).max(1_024).optional(),
      format: z.enum(["standard", "codeq"]).optional(),
      secret: secret.optional(),
      isEnabled: z.boolean().optional(),
    })
    .openapi("WebhookEndpointDefinition"),
  answers: { 200: { description: "The endpoint", schema: withSecret } },
  async handle({ caller, scope, params, body }) {
    requireAll(caller, "webhook.change");
    const { tenant, webhooks } = scope;
    const options = withoutUndefined(body) as EndpointOptions;
    const limits = { endpointsMax: ENDPOINTS_MAX };
    const made = await webhooks.put(tenant, params.id, options, limits);
    const revealed = made.secret === undefined ? {} : { secret: made.secret.reveal() };
    return { status: 200, body: { endpoint: made.endpoint, ...revealed } };
  },
});

const rotate = endpoint({
  method: "post",
  path: "/v1/webhooks/:id/rotate",
  tag: TAG,
  summary: "Give an endpoint another secret; the old one signs, too, for a while",
  act: "webhook.change",
  params: endpointParams,
  body: z.strictObject({
    secret: secret.optional(),
    overlapSeconds: z.number().min(0).optional(),
  }),
  isBodyOptional: true,
  answers: { 200: { description: "The endpoint", schema: withSecret } },
  async handle({ caller, scope, params, body }) {
    requireAll(caller, "webhook.change");
    const options = withoutUndefined(body) as RotateOptions;
    const rotated = await scope.webhooks.rotate(scope.tenant, params.id, options);
    const { endpoint: changed } = rotated;
    return { status: 200, body: { endpoint: changed, secret: rotated.secret.reveal() } };
  },
});

const remove = endpoint({
  method: "delete",
  path: "/v1/webhooks/:id",
  tag: TAG,
  summary: "Forget an endpoint; messages that wait for it will be dead",
  act: "webhook.change",
  params: endpointParams,
  answers: { 204: { description: "It is gone" } },
  async handle({ caller, scope, params }) {
    requireAll(caller, "webhook.change");
    await scope.webhooks.remove(scope.tenant, params.id);
    return { status: 204 };
  },
});

const filterFields = {
  endpoint: endpointId.optional(),
  taskId: taskId.optional(),
  type: webhookType.optional(),
};

const deliveries = endpoint({
  method: "get",
  path: "/v1/webhook-deliveries",
  tag: TAG,
  summary: "What was sent, newest first",
  description: "While there are more, the answer has a cursor for the next page.",
  act: "webhook.read",
  query: z.strictObject({
    ...filterFields,
    state: deliveryState.optional(),
    cursor: deliveryId.optional(),
    limit,
  }),
  answers: {
    200: {
      description: "A page",
      schema: z.object({ deliveries: z.array(deliveryView), cursor: z.string().optional() }),
    },
  },
  async handle({ caller, scope, query }) {
    requireAll(caller, "webhook.read");
    const { cursor: before, limit: most = 50, ...filter } = query;
    const options = withoutUndefined({ ...filter, before, limit: most }) as ListDeliveriesOptions;
    const found = await scope.webhooks.deliveries(scope.tenant, options);
    const cursor = found.length < most ? undefined : found.at(-1)?.id;
    return { status: 200, body: { deliveries: found, cursor } };
  },
});

const delivery = endpoint({
  method: "get",
  path: "/v1/webhook-deliveries/:id",
  tag: TAG,
  summary: "One message and every attempt to send it",
  act: "webhook.read",
  params: z.strictObject({ id: deliveryId }),
  answers: {
    200: {
      description: "The message",
      schema: deliveryView.extend({ attempts: z.array(attemptView) }),
    },
  },
  async handle({ caller, scope, params }) {
    requireAll(caller, "webhook.read");
    const found = await scope.webhooks.delivery(scope.tenant, params.id);
    return { status: 200, body: { ...found, attempts: found.attempts.map(toAttemptView) } };
  },
});

const redeliver = endpoint({
  method: "post",
  path: "/v1/webhook-deliveries/redeliver",
  tag: TAG,
  summary: "Send messages again: dead ones, or those that are named",
  act: "webhook.change",
  body: z.strictObject({
    ...filterFields,
    ids: z.array(deliveryId).min(1).max(1_000).optional(),
    state: z.enum(["dead", "delivered"]).optional(),
  }),
  isBodyOptional: true,
  answers: {
    200: { description: "How many", schema: z.object({ redelivered: z.number() }) },
  },
  async handle({ caller, scope, body }) {
    requireAll(caller, "webhook.change");
    const filter = withoutUndefined(body) as RedeliverFilter;
    const redelivered = await scope.webhooks.redeliver(scope.tenant, filter);
    return { status: 200, body: { redelivered } };
  },
});

export const webhookEndpoints: readonly Endpoint[] = [
  list,
  get,
  put,
  rotate,
  remove,
  deliveries,
  delivery,
  redeliver,
];
