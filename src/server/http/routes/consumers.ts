import { z } from "@hono/zod-openapi";
import { ConflictError, NotFoundError } from "../../../base/errors.ts";
import type { ConsumerStatus } from "../../../consumers/status.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { bigNumber, instant, nameParams, reasonBody } from "../schemas.ts";
import { parkedEndpoints } from "./parked.ts";
import { rebuildEndpoints } from "./rebuilds.ts";

const TAG = "Consumers";

export const consumerView = z
  .object({
    name: z.string().openapi({ description: "The consumer, or one partition as name/index" }),
    checkpoint: z.string(),
    lag: z.string(),
    lagSeconds: z.number().optional().openapi({
      description: "The age of the first event that it has not passed; none at the end of the log",
    }),
    workerId: z.string().optional(),
    state: z.enum(["running", "unassigned", "paused", "quarantined"]),
    reason: z.string().optional(),
    poison: z
      .object({
        position: z.string(),
        eventId: z.string().optional(),
        error: z.string().optional(),
        stack: z.string().optional(),
        failures: z.number().int(),
        since: instant.optional(),
      })
      .optional(),
    parkedStreams: z.number().int().openapi({ description: "Counted up to 10,000" }),
    parkedEvents: z.number().int().openapi({ description: "Counted up to 10,000" }),
    isParkedCut: z.boolean().openapi({
      description: "Whether counting events ended there: there may be more",
    }),
  })
  .openapi("Consumer");

const consumers = z.object({ consumers: z.array(consumerView) });

/** All partitions of it, or the one. */
async function partitionsOf(mill: Tidemill, name: string): Promise<ConsumerStatus[]> {
  const all = await mill.listConsumers();
  const found = all.filter((one) => one.name === name || one.name.replace(/\/\d+$/, "") === name);
  if (found.length === 0) {
    throw new NotFoundError(`there is no consumer ${JSON.stringify(name)}`);
  }
  return found;
}

function reading(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/consumers",
      tag: TAG,
      summary: "List consumers, one line per partition",
      act: "cluster.read",
      answers: { 200: { description: "Consumers", schema: consumers } },
      async handle() {
        return { status: 200, body: { consumers: await mill.listConsumers() } };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/consumers/:name",
      tag: TAG,
      summary: "Where the partitions of a consumer are, and what stops them",
      act: "cluster.read",
      params: nameParams,
      answers: { 200: { description: "Its partitions", schema: consumers } },
      async handle({ params }) {
        return { status: 200, body: { consumers: await partitionsOf(mill, params.name) } };
      },
    }),
  ];
}

const resumed = z.object({ resumed: z.number().int(), replaying: z.number().int() });

function stopping(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/pause",
      tag: TAG,
      summary: "Stop a consumer after its batch in flight",
      act: "cluster.change",
      params: nameParams,
      body: reasonBody,
      isBodyOptional: true,
      answers: { 200: { description: "Its partitions", schema: consumers } },
      async handle({ params: { name }, body: { reason } }) {
        await mill.consumers.pause(name, reason === undefined ? {} : { reason });
        return { status: 200, body: { consumers: await partitionsOf(mill, name) } };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/resume",
      tag: TAG,
      summary: "Let a paused or quarantined consumer go on, and replay what was parked",
      act: "cluster.change",
      params: nameParams,
      body: reasonBody,
      isBodyOptional: true,
      answers: { 200: { description: "What was undone", schema: resumed } },
      async handle({ params: { name }, body: { reason } }) {
        const why = reason === undefined ? {} : { reason };
        return { status: 200, body: await mill.consumers.resume(name, why) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/rewind",
      tag: TAG,
      summary: "Move the checkpoint back, so that events above it are handled again",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({ to: bigNumber, reason: z.string().min(1).max(1_024).optional() }),
      answers: { 200: { description: "Its partitions", schema: consumers } },
      async handle({ params: { name }, body: { to, reason } }) {
        await mill.consumers.rewind(name, { to, ...(reason === undefined ? {} : { reason }) });
        return { status: 200, body: { consumers: await partitionsOf(mill, name) } };
      },
    }),
  ];
}

function quarantine(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/quarantine/retry",
      tag: TAG,
      summary: "Try the poison event of a quarantined consumer again",
      act: "cluster.change",
      params: nameParams,
      answers: { 200: { description: "What was undone", schema: resumed } },
      async handle({ params: { name } }) {
        const partitions = await partitionsOf(mill, name);
        if (!partitions.some(({ state }) => state === "quarantined")) {
          throw new ConflictError(`consumer ${name} is not quarantined`);
        }
        return { status: 200, body: await mill.consumers.resume(name) };
      },
    }),
    endpoint({
      method: "post",
      path: "/v1/consumers/:name/skip",
      tag: TAG,
      summary: "Pass one position without handling it, for ever",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({
        reason: z.string().min(1).max(1_024),
        position: bigNumber.optional(),
      }),
      answers: {
        200: { description: "What was passed", schema: z.object({ position: z.string() }) },
      },
      async handle({ params: { name }, body: { reason, position } }) {
        const at = position === undefined ? {} : { position };
        return {
          status: 200,
          body: { position: await mill.consumers.skip(name, { reason, ...at }) },
        };
      },
    }),
  ];
}

export function consumerEndpoints(mill: Tidemill): Endpoint[] {
  return [
    ...reading(mill),
    ...stopping(mill),
    ...quarantine(mill),
    ...parkedEndpoints(mill),
    ...rebuildEndpoints(mill),
  ];
}
