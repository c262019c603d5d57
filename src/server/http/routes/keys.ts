import { z } from "@hono/zod-openapi";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { ApiKeyAdmin } from "../../auth/api-key-admin.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant, name } from "../schemas.ts";

const TAG = "API keys";

const keyView = z
  .object({
    id: z.string(),
    tenant: z.string(),
    name: z.string().optional(),
    scopes: z.array(z.string()),
    queues: z.union([z.literal("all"), z.array(z.string())]),
    state: z.enum(["active", "expired", "revoked"]),
    createdAt: instant,
    expiresAt: instant.optional(),
    revokedAt: instant.optional(),
    lastUsedAt: instant.optional(),
  })
  .openapi("ApiKey", { description: "What may be shown of a key; its text is nowhere" });

/** To make keys is left to the command line: a token that leaked must not make itself another. */
export function keyEndpoints(mill: Tidemill): Endpoint[] {
  const keys = new ApiKeyAdmin(mill.engine.db);
  return [
    endpoint({
      method: "get",
      path: "/v1/keys",
      tag: TAG,
      summary: "API keys by tenant, oldest first",
      act: "cluster.read",
      query: z.strictObject({ tenant: name.optional() }),
      answers: { 200: { description: "Keys", schema: z.object({ keys: z.array(keyView) }) } },
      async handle({ query: { tenant } }) {
        const found = await keys.list(tenant === undefined ? {} : { tenant });
        return { status: 200, body: { keys: found } };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/keys/:id/revoke",
      tag: TAG,
      summary: "Revoke a key for ever; every server refuses it within seconds",
      act: "cluster.change",
      params: z.strictObject({ id: z.string().regex(/^[0-9a-f]{16}$/, "16 of 0 to 9, a to f") }),
      answers: { 200: { description: "The key", schema: keyView } },
      async handle({ params }) {
        return { status: 200, body: await keys.revoke(params.id) };
      },
    }),
  ];
}
