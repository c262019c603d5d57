import { z } from "@hono/zod-openapi";
import { withoutUndefined } from "../../../base/options.ts";
import type { QuotaChanges } from "../../../tasks/quota.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { name } from "../schemas.ts";

const TAG = "Quotas";

const amount = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const rate = z.strictObject({
  count: z.number().int().min(1).max(1_000_000_000),
  seconds: z.number().min(0.001).max(86_400),
});
const quotaFields = {
  tenant: z.string(),
  pendingTasks: amount.nullable(),
  pendingBytes: amount.nullable(),
  rate: rate.nullable(),
};
const quotaView = z.object(quotaFields).openapi("Quota");
const quotaUse = z
  .object({ ...quotaFields, used: z.object({ tasks: amount, bytes: amount }) })
  .openapi("QuotaUse");
const changes = z
  .strictObject({
    pendingTasks: amount.nullable().optional(),
    pendingBytes: amount.nullable().optional(),
    rate: rate.nullable().optional(),
  })
  .openapi("QuotaChanges");
const tenantParams = z.strictObject({ tenant: name });

/** A tenant sees its own; who may have how much is for those who run the server. */
export const quotaEndpoints = (mill: Tidemill): readonly Endpoint[] => [
  endpoint({
    method: "get",
    path: "/v1/quota",
    tag: TAG,
    summary: "What the caller's tenant may have, and has",
    act: "task.read",
    answers: { 200: { description: "Null is no limit", schema: quotaUse } },
    async handle({ caller }) {
      return { status: 200, body: await mill.quotas.get(caller.tenant) };
    },
  }),
  endpoint({
    method: "get",
    path: "/v1/tenants",
    tag: TAG,
    summary: "Tenants that have a quota, by name",
    act: "cluster.read",
    answers: {
      200: { description: "All of them", schema: z.object({ tenants: z.array(quotaView) }) },
    },
    async handle() {
      return { status: 200, body: { tenants: await mill.quotas.list() } };
    },
  }),
  endpoint({
    method: "get",
    path: "/v1/tenants/:tenant/quota",
    tag: TAG,
    summary: "What a tenant may have, and has",
    act: "cluster.read",
    params: tenantParams,
    answers: { 200: { description: "Null is no limit", schema: quotaUse } },
    async handle({ params }) {
      return { status: 200, body: await mill.quotas.get(params.tenant) };
    },
  }),
  endpoint({
    method: "put",
    path: "/v1/tenants/:tenant/quota",
    tag: TAG,
    summary: "Change what a tenant may have",
    description:
      "What is left out stays as it is, null lifts it. Every server follows within two seconds.",
    act: "cluster.change",
    params: tenantParams,
    body: changes,
    answers: { 200: { description: "The quota", schema: quotaView } },
    async handle({ params, body }) {
      const given = withoutUndefined(body) as QuotaChanges;
      return { status: 200, body: await mill.quotas.put(params.tenant, given) };
    },
  }),
  endpoint({
    method: "delete",
    path: "/v1/tenants/:tenant/quota",
    tag: TAG,
    summary: "Let a tenant have as much as it likes",
    act: "cluster.change",
    params: tenantParams,
    answers: { 204: { description: "It has no quota" } },
    async handle({ params }) {
      await mill.quotas.clear(params.tenant);
      return { status: 204 };
    },
  }),
];
