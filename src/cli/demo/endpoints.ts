import { z } from "@hono/zod-openapi";
import { type Endpoint, endpoint } from "../../server/http/endpoint.ts";
import { nameParams } from "../../server/http/schemas.ts";
import { MOODS } from "./courier.ts";
import type { Demo } from "./demo.ts";
import { type FleetWorker, WORKERS_MAX } from "./fleet.ts";
import { CLUSTER, LEASE_SECONDS } from "./shop.ts";

const TAG = "Demo";
/** As far as the slider goes, and as far as anybody may. */
const SLIDER_MAX = 200;
const RATE_MAX = 2_000;
/** The page of the dashboard that calls these. */
export const SHOP_PAGE = "shop";

const worker = z.object({
  name: z.string(),
  pid: z.number().int().optional(),
  workerId: z.string().optional(),
  state: z.enum(["starting", "running", "paused", "stopping", "stopped", "killed", "failed"]),
});

const count = z.number().int();
const view = z.object({
  rate: count,
  rateMax: count,
  workers: z.array(worker),
  workersMax: count,
  leaseSeconds: z.number(),
  heartbeatSeconds: z.number(),
  courier: z.object({ mood: z.enum(MOODS), calls: count, refusals: count }),
  promised: z.object({ orders: count, events: count, tasks: count }),
  refused: count.openapi({ description: "Completions that came after the lease was lost" }),
  score: z.object({
    lost: count,
    doubled: count,
    outOfOrder: count,
    tasksDone: count,
    eventsDone: count,
    tasksOpen: count,
    looks: count,
    findings: z.array(z.string()),
  }),
  happenings: z.array(z.object({ atMs: z.number(), text: z.string() })),
});

function viewOf(demo: Demo): z.infer<typeof view> {
  const { rate, courier, fleet, promised, refused, score, happenings } = demo;
  return {
    rate,
    rateMax: Math.max(SLIDER_MAX, rate),
    workers: fleet.workers.map(toView),
    workersMax: WORKERS_MAX,
    leaseSeconds: LEASE_SECONDS,
    heartbeatSeconds: CLUSTER.heartbeatTimeout / 1_000,
    courier: { mood: courier.mood, calls: courier.calls, refusals: courier.refusals },
    promised,
    refused,
    score: { ...score, findings: [...score.findings] },
    happenings: [...happenings],
  };
}

function toView({ name, state, pid, workerId }: FleetWorker): z.infer<typeof worker> {
  const known = workerId === undefined ? {} : { workerId };
  return { name, state, ...(pid === undefined ? {} : { pid }), ...known };
}

const ACTS = {
  kill: "Kill a worker process, as kill -9 does",
  pause: "Stop a worker process in the middle of a letter (SIGSTOP)",
  resume: "Let a paused worker process go on (SIGCONT)",
  stop: "Ask a worker process to stop in peace (SIGTERM)",
} as const;

/** What the page of the shop asks for. Only `tidemill dev` serves these. */
export function demoEndpoints(demo: Demo): Endpoint[] {
  return [...settings(demo), ...workers(demo)];
}

function settings(demo: Demo): Endpoint[] {
  const answers = { 200: { description: "The shop", schema: view } };
  return [
    endpoint({
      method: "get",
      path: "/v1/demo",
      tag: TAG,
      summary: "How the shop is doing",
      act: "cluster.read",
      answers,
      handle: () => Promise.resolve({ status: 200, body: viewOf(demo) }),
    }),
    endpoint({
      method: "put",
      path: "/v1/demo/rate",
      tag: TAG,
      summary: "How many events the shop takes in a second",
      act: "cluster.change",
      body: z.strictObject({ rate: z.number().int().min(0).max(RATE_MAX) }),
      answers,
      handle({ body }) {
        demo.setRate(body.rate);
        return Promise.resolve({ status: 200, body: viewOf(demo) });
      },
    }),
    endpoint({
      method: "put",
      path: "/v1/demo/courier",
      tag: TAG,
      summary: "How the courier answers",
      act: "cluster.change",
      body: z.strictObject({ mood: z.enum(MOODS) }),
      answers,
      handle({ body }) {
        demo.setMood(body.mood);
        return Promise.resolve({ status: 200, body: viewOf(demo) });
      },
    }),
  ];
}

function workers({ fleet }: Demo): Endpoint[] {
  const shared = { method: "post", tag: TAG, act: "cluster.change" } as const;
  return [
    endpoint({
      ...shared,
      path: "/v1/demo/workers",
      summary: "Start another worker process",
      answers: { 201: { description: "It", schema: worker } },
      handle: async () => ({ status: 201, body: toView(fleet.add()) }),
    }),
    ...Object.entries(ACTS).map(([act, summary]) =>
      endpoint({
        ...shared,
        path: `/v1/demo/workers/:name/${act}`,
        summary,
        params: nameParams,
        answers: { 200: { description: "It", schema: worker } },
        // Within a promise: what it refuses is an answer.
        handle: async ({ params }) => {
          const one = await fleet[act as keyof typeof ACTS](params.name);
          return { status: 200, body: toView(one) };
        },
      }),
    ),
  ];
}
