import { z } from "@hono/zod-openapi";
import { readGapHistory } from "../../../consumers/sql/gap-history.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant, limit, nameParams } from "../schemas.ts";

const LIMIT = 50;

const crossedGap = z
  .object({
    position: z.string(),
    to: z.string(),
    at: instant,
    openSeconds: z.number(),
    workerId: z.string(),
    how: z.enum(["epoch", "lockers", "person", "unsafe-time"]).optional(),
    missing: z.string().optional(),
    ceiling: z.string().optional(),
    fence: z.string().optional(),
    reason: z.string().optional(),
  })
  .openapi("CrossedGap");

export function gapEndpoints(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/consumers/:name/gaps",
      tag: "Consumers",
      summary: "Positions without an event that a partition crossed, newest first, with the proof",
      act: "cluster.read",
      params: nameParams,
      query: z.strictObject({ limit }),
      answers: {
        200: { description: "Gaps", schema: z.object({ gaps: z.array(crossedGap) }) },
      },
      async handle({ params: { name }, query: { limit: most = LIMIT } }) {
        const gaps = await readGapHistory(mill.engine.db, name, most);
        return { status: 200, body: { gaps } };
      },
    }),
  ];
}
