import { z } from "@hono/zod-openapi";
import { PARTITIONS_MAX } from "../../../consumers/consumer.ts";
import { rebuildName } from "../../../consumers/rebuild/names.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant, nameParams, reasonBody } from "../schemas.ts";

const TAG = "Consumers";
const PATH = "/v1/consumers/:name/rebuild";

const rebuildView = z
  .object({
    consumer: z.string(),
    id: z.string(),
    state: z.enum(["building", "swapped", "rolled_back"]),
    reason: z.string().optional(),
    startedAt: instant,
    changedAt: instant,
    tables: z.array(z.string()).openapi({ description: "The live tables" }),
    schema: z.string().openapi({
      description: "Where the others are: the rebuilt ones, or after a swap those from before",
    }),
    partitions: z.array(
      z.object({ name: z.string(), checkpoint: z.string(), lag: z.string(), state: z.string() }),
    ),
    progress: z
      .object({
        position: z.string(),
        head: z.string(),
        share: z.number().openapi({ description: "0 to 1" }),
        positionsPerSecond: z.number().optional(),
        etaSeconds: z.number().optional(),
        stopped: z.enum(["paused", "quarantined"]).optional(),
        error: z.string().optional(),
      })
      .optional(),
  })
  .openapi("Rebuild");

const comparisonView = z
  .object({
    position: z.string(),
    isSame: z.boolean(),
    tables: z.array(
      z.object({
        table: z.string(),
        liveRows: z.number().int(),
        rebuiltRows: z.number().int(),
        compared: z.enum(["all", "sample", "counts"]),
        missing: z.number().int(),
        extra: z.number().int(),
        different: z.number().int(),
        examples: z.array(
          z.object({
            kind: z.enum(["missing", "extra", "different"]),
            key: z.string(),
            live: z.string().optional(),
            rebuilt: z.string().optional(),
          }),
        ),
      }),
    ),
  })
  .openapi("Comparison");

const answered = { 200: { description: "The rebuild", schema: rebuildView } };

const rebuildableView = z.object({
  consumer: z.string(),
  tables: z.array(z.string()),
  rebuild: rebuildView.optional(),
});

function listing(mill: Tidemill): Endpoint {
  return endpoint({
    method: "get",
    path: "/v1/rebuilds",
    tag: TAG,
    summary: "Projections that declare their tables, with their rebuilds",
    act: "cluster.read",
    answers: {
      200: {
        description: "By name",
        schema: z.object({ projections: z.array(rebuildableView) }),
      },
    },
    async handle() {
      return { status: 200, body: { projections: await mill.consumers.rebuilds.list() } };
    },
  });
}

function building(mill: Tidemill): Endpoint[] {
  const { consumers } = mill;
  return [
    endpoint({
      method: "get",
      path: PATH,
      tag: TAG,
      summary: "How far the rebuild of a projection is, and what is kept",
      act: "cluster.read",
      params: nameParams,
      answers: answered,
      async handle({ params: { name } }) {
        return { status: 200, body: await consumers.rebuilds.status(name) };
      },
    }),
    endpoint({
      method: "post",
      path: PATH,
      tag: TAG,
      summary: "Build the tables of a projection anew, beside the live ones",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({
        partitions: z.number().int().min(1).max(PARTITIONS_MAX).optional(),
        reason: z.string().min(1).max(1_024).optional(),
      }),
      isBodyOptional: true,
      answers: { 201: { description: "The rebuild", schema: rebuildView } },
      async handle({ params: { name }, body: { partitions, reason } }) {
        const body = await consumers.rebuilds.start(name, {
          ...(partitions === undefined ? {} : { partitions }),
          ...(reason === undefined ? {} : { reason }),
        });
        return { status: 201, body };
      },
    }),
    endpoint({
      method: "post",
      path: `${PATH}/pause`,
      tag: TAG,
      summary: "Stop a rebuild after its batches in flight; the projection goes on",
      act: "cluster.change",
      params: nameParams,
      body: reasonBody,
      isBodyOptional: true,
      answers: answered,
      async handle({ params: { name }, body: { reason } }) {
        await consumers.pause(rebuildName(name), reason === undefined ? {} : { reason });
        return { status: 200, body: await consumers.rebuilds.status(name) };
      },
    }),
    endpoint({
      method: "post",
      path: `${PATH}/resume`,
      tag: TAG,
      summary: "Let a paused or quarantined rebuild go on",
      act: "cluster.change",
      params: nameParams,
      answers: answered,
      async handle({ params: { name } }) {
        await consumers.resume(rebuildName(name));
        return { status: 200, body: await consumers.rebuilds.status(name) };
      },
    }),
  ];
}

function deciding(mill: Tidemill): Endpoint[] {
  const { rebuilds } = mill.consumers;
  return [
    endpoint({
      method: "post",
      path: `${PATH}/compare`,
      tag: TAG,
      summary: "Compare the live tables with the rebuilt ones at one position, row by row",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({
        ignore: z.array(z.string().min(1).max(63)).max(100).optional(),
        rowsMax: z.number().int().min(1).max(1e9).optional(),
      }),
      isBodyOptional: true,
      answers: { 200: { description: "What differs", schema: comparisonView } },
      async handle({ params: { name }, body: { ignore, rowsMax } }) {
        const body = await rebuilds.compare(name, {
          ...(ignore === undefined ? {} : { ignore }),
          ...(rowsMax === undefined ? {} : { rowsMax }),
        });
        return { status: 200, body };
      },
    }),
    endpoint({
      method: "post",
      path: `${PATH}/swap`,
      tag: TAG,
      summary: "Put the rebuilt tables in the place of the live ones, and keep those",
      act: "cluster.change",
      params: nameParams,
      body: z.strictObject({ force: z.boolean().optional() }),
      isBodyOptional: true,
      answers: answered,
      async handle({ params: { name }, body: { force = false } }) {
        await rebuilds.swap(name, { force });
        return { status: 200, body: await rebuilds.status(name) };
      },
    }),
    endpoint({
      method: "post",
      path: `${PATH}/rollback`,
      tag: TAG,
      summary: "Put the tables from before the swap back, with the position that they had",
      act: "cluster.change",
      params: nameParams,
      answers: answered,
      async handle({ params: { name } }) {
        await rebuilds.rollBack(name);
        return { status: 200, body: await rebuilds.status(name) };
      },
    }),
  ];
}

function ending(mill: Tidemill): Endpoint[] {
  const { rebuilds } = mill.consumers;
  return [
    endpoint({
      method: "post",
      path: `${PATH}/cancel`,
      tag: TAG,
      summary: "End a rebuild that is not swapped in, and drop the rebuilt tables",
      act: "cluster.change",
      params: nameParams,
      answers: { 204: { description: "It is gone" } },
      async handle({ params: { name } }) {
        await rebuilds.cancel(name);
        return { status: 204 };
      },
    }),
    endpoint({
      method: "post",
      path: `${PATH}/forget`,
      tag: TAG,
      summary: "Drop the tables from before the swap",
      act: "cluster.change",
      params: nameParams,
      answers: { 204: { description: "They are gone" } },
      async handle({ params: { name } }) {
        await rebuilds.forget(name);
        return { status: 204 };
      },
    }),
  ];
}

export function rebuildEndpoints(mill: Tidemill): Endpoint[] {
  return [listing(mill), ...building(mill), ...deciding(mill), ...ending(mill)];
}
