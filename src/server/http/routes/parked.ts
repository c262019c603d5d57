import { z } from "@hono/zod-openapi";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant, name, nameParams } from "../schemas.ts";

const TAG = "Consumers";
const STREAMS_MAX = 1_000;

const streamFields = { type: name, id: name };

const groupView = z
  .object({
    consumer: z.string().openapi({ description: "Or one partition as name/index" }),
    state: z.enum(["parked", "replaying"]),
    error: z.string().openapi({ description: "With # for each number" }),
    stack: z.string().optional(),
    events: z.number().int(),
    firstAt: instant,
    lastAt: instant,
    streams: z.array(
      z.object({
        ...streamFields,
        since: instant,
        events: z.number().int(),
        position: z.string().optional(),
      }),
    ),
  })
  .openapi("ParkedGroup");

export function parkedEndpoints(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/parked-streams/groups",
      tag: TAG,
      summary: "Streams that consumers set aside, by why, the most events first",
      description: "Of the newest 1,000. `isCut` tells that there are more.",
      act: "cluster.read",
      answers: {
        200: {
          description: "Groups",
          schema: z.object({ groups: z.array(groupView), isCut: z.boolean() }),
        },
      },
      async handle() {
        return { status: 200, body: await mill.consumers.parked() };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/replay",
      tag: TAG,
      summary: "Handle the events of parked streams again, in order, before newer ones of theirs",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({
        streams: z.array(z.strictObject(streamFields)).min(1).max(STREAMS_MAX),
        reason: z.string().min(1).max(1_024).optional(),
      }),
      answers: {
        200: {
          description: "How many streams are replayed",
          schema: z.object({ replaying: z.number().int() }),
        },
      },
      async handle({ params, body: { streams, reason } }) {
        const why = reason === undefined ? {} : { reason };
        const replaying = await mill.consumers.replay(params.name, { streams, ...why });
        return { status: 200, body: { replaying } };
      },
    }),
  ];
}
