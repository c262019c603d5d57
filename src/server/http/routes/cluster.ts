import { z } from "@hono/zod-openapi";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { clusterStatus } from "../../cluster-status.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { anyJson } from "../schemas.ts";
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

const gapsView = z.object({
  positions: z.array(z.string()),
  holders: z.array(z.record(z.string(), anyJson)),
});

const statusView = z
  .object({
    latestPosition: z.string(),
    leader,
    workers: z.array(workerView),
    consumers: z.array(consumerView),
    openGaps: gapsView,
    queues: z.array(queueView),
  })
  .openapi("Status");

export function clusterEndpoints(mill: Tidemill): Endpoint[] {
  return [
    endpoint({
      method: "get",
      path: "/v1/status",
      tag: TAG,
      summary: "Workers, consumers, queues, who leads and open gaps, at once",
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
