import { z } from "@hono/zod-openapi";
import { listActs } from "../../../cluster/sql/audit-log.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { anyJson, instant, limit, taskId } from "../schemas.ts";

const LIMIT = 50;

const actView = z
  .object({
    id: z.string(),
    at: instant,
    act: z.string(),
    call: z.string().openapi({ example: "POST /v1/queues/:name/pause" }),
    target: z.record(z.string(), anyJson),
    reason: z.string().optional(),
    tenant: z.string(),
    subject: z.string(),
    tokenId: z.string(),
    requestId: z.string(),
    status: z
      .number()
      .int()
      .optional()
      .openapi({ description: "Of the answer; without one, the server died meanwhile" }),
  })
  .openapi("Act");

export function auditEndpoints(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/audit",
      tag: "Cluster",
      summary: "Who did what through servers, and why, newest first; of the last year",
      act: "cluster.read",
      query: z.strictObject({ cursor: taskId.optional(), limit }),
      answers: {
        200: {
          description: "A page",
          schema: z.object({ acts: z.array(actView), cursor: z.string().optional() }),
        },
      },
      async handle({ query: { cursor, limit: most = LIMIT } }) {
        const rows = await listActs(mill.engine.db, cursor, most);
        const acts = rows.map(({ reason, status, ...row }) => ({
          ...row,
          reason: reason ?? undefined,
          status: status ?? undefined,
        }));
        const last = rows.length < most ? undefined : rows.at(-1)?.id;
        return { status: 200, body: { acts, cursor: last } };
      },
    }),
  ];
}
