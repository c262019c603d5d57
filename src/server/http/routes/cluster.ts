import { z } from "@hono/zod-openapi";
import type { Clock } from "../../../base/clock.ts";
import { DEFAULT_TENANT } from "../../../tasks/task.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { clusterStatus } from "../../cluster-status.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { anyJson, instant, name } from "../schemas.ts";
import { SharedAnswers } from "../shared-answers.ts";
import { consumerView } from "./consumers.ts";
import { queueView } from "./queues.ts";

const TAG = "Cluster";

const workerView = z
  .object({
    id: z.string(),
    status: z.enum(["active", "draining", "stopped", "dead"]),
    host: z.string().optional(),
    pid: z.number().int().optional(),
    version: z.string().optional(),
    heartbeatAgeSeconds: z.number(),
    startedAt: instant.optional(),
    endedAt: instant.optional(),
    isLeader: z.boolean(),
    assigned: z.array(z.string()),
    load: z.record(z.string(), anyJson),
  })
  .openapi("Worker");

const leader = z.object({ term: z.string(), workerId: z.string().optional() });

const ringView = z
  .object({
    keySpace: z.string(),
    tenant: z.string(),
    queues: z.array(z.string()),
    owners: z.array(
      z.object({ worker: z.string(), epoch: z.string(), buckets: z.array(z.number().int()) }),
    ),
  })
  .openapi("Ring");

const loadFields = {
  waiting: z.number().int(),
  running: z.number().int(),
  ended: z.number().int().openapi({ description: "Among the newest tasks that ended" }),
};

const ringLoad = z
  .object({
    buckets: z.array(
      z.object({
        bucket: z.number().int(),
        ...loadFields,
        isCut: z.boolean().openapi({ description: "There is more than was counted" }),
      }),
    ),
    keys: z.array(z.object({ key: z.string(), bucket: z.number().int(), ...loadFields })),
    looked: z.record(z.string(), z.number().int()),
  })
  .openapi("RingLoad", { description: "A sample of bounded cost, not a count" });

/** Everybody who looks at the ring within this time is told the same. */
const LOAD_MS = 2_000;

function ringEndpoints(mill: Tidemill, clock: Clock): Endpoint[] {
  const loads = new SharedAnswers<object>(clock, LOAD_MS);
  return [
    endpoint({
      method: "get",
      path: "/v1/ring",
      tag: TAG,
      summary: "Who owns which buckets of each key space",
      act: "cluster.read",
      answers: { 200: { description: "Rings", schema: z.object({ rings: z.array(ringView) }) } },
      async handle() {
        return { status: 200, body: { rings: await mill.queues.ring() } };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/ring/load",
      tag: TAG,
      summary: "How the tasks of a key space are spread over its buckets, and its busiest keys",
      description: "Looks at no more than `looked` says, and at most every two seconds.",
      act: "cluster.read",
      query: z.strictObject({ keySpace: name, tenant: name.optional() }),
      answers: { 200: { description: "As far as was looked", schema: ringLoad } },
      async handle({ query: { keySpace, tenant = DEFAULT_TENANT } }) {
        const key = JSON.stringify([keySpace, tenant]);
        const body = await loads.get(key, () => mill.queues.ringLoad(keySpace, { tenant }));
        return { status: 200, body };
      },
    }),
  ];
}

const gapsView = z.object({
  positions: z.array(z.string()),
  holders: z.array(z.record(z.string(), anyJson)),
});

const statusView = z
  .object({
    at: instant.openapi({ description: "By the clock of the database, as all instants" }),
    latestPosition: z.string(),
    leader,
    workers: z.array(workerView),
    consumers: z.array(consumerView),
    openGaps: gapsView,
    queues: z.array(queueView),
    failingSchedules: z.array(
      z.object({ tenant: z.string(), name: z.string(), error: z.string() }),
    ),
  })
  .openapi("Status");

export function clusterEndpoints(mill: Tidemill, clock: Clock): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/status",
      tag: TAG,
      summary: "Workers, consumers, queues, who leads, what cannot fire and open gaps, at once",
      act: "cluster.read",
      answers: { 200: { description: "The cluster", schema: statusView } },
      async handle() {
        return { status: 200, body: await clusterStatus(mill) };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/workers",
      tag: TAG,
      summary: "Workers, those of the last day included, and who leads",
      act: "cluster.read",
      answers: {
        200: {
          description: "Workers",
          schema: z.object({ workers: z.array(workerView), leader }),
        },
      },
      async handle() {
        const { workers, leader: first } = await mill.status();
        return { status: 200, body: { workers, leader: first } };
      },
    }),
    ...ringEndpoints(mill, clock),
    endpoint({
      method: "get",
      path: "/v1/gaps",
      tag: TAG,
      summary: "Missing positions that an unfinished append may still fill, and who holds them",
      act: "cluster.read",
      answers: {
        200: {
          description: "Open gaps",
          schema: gapsView,
        },
      },
      async handle() {
        const { openGaps } = await mill.status();
        return { status: 200, body: openGaps };
      },
    }),
  ];
}
