import { Hono } from "hono";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Tenants } from "../../worker/tenants.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Feed } from "../feed/feed.ts";
import { Budget } from "../producer/budget.ts";
import { type AnsweringContext, answer, refuse } from "./answering.ts";
import type { ClaimDesk } from "./claim-desk.ts";
import { codeqAdminEndpoints } from "./codeq/admin.ts";
import { codeqClaimEndpoints } from "./codeq/claims.ts";
import { codeqSubscriptionEndpoints } from "./codeq/subscriptions.ts";
import { codeqTaskEndpoints } from "./codeq/tasks.ts";
import type { Dashboard } from "./dashboard.ts";
import { writeDocsPage } from "./docs-page.ts";
import { describe, type OpenPlace } from "./document.ts";
import type { Endpoint } from "./endpoint.ts";
import { requestIdOf } from "./gate.ts";
import { HttpMetrics } from "./metrics.ts";
import { type HttpLimits, resolveHttpLimits } from "./options.ts";
import { noSuchPath, wrongMethod } from "./problem.ts";
import { RateLimiter } from "./rate-limiter.ts";
import { ReadinessCheck } from "./readiness.ts";
import { auditEndpoints } from "./routes/audit.ts";
import { claimEndpoints } from "./routes/claims.ts";
import { clusterEndpoints } from "./routes/cluster.ts";
import { consumerEndpoints } from "./routes/consumers.ts";
import { deadLetterEndpoints } from "./routes/dead-letters.ts";
import { eventEndpoints } from "./routes/events.ts";
import { feedEndpoints } from "./routes/feed.ts";
import { gapEndpoints } from "./routes/gaps.ts";
import { keyEndpoints } from "./routes/keys.ts";
import { meEndpoints } from "./routes/me.ts";
import { queueEndpoints } from "./routes/queues.ts";
import { quotaEndpoints } from "./routes/quotas.ts";
import { scheduleEndpoints } from "./routes/schedules.ts";
import { subscriptionEndpoints } from "./routes/subscriptions.ts";
import { taskEndpoints } from "./routes/tasks.ts";
import { webhookEndpoints } from "./routes/webhooks.ts";
import { secure } from "./security-headers.ts";
import { Waits } from "./waits.ts";

export interface HttpApiContext {
  readonly mill: Tidemill;
  /** Of `mill.tenants()`. */
  readonly tenants: Tenants;
  readonly authenticator: Authenticator;
  /** Without one, tasks cannot be claimed here. */
  readonly desk?: ClaimDesk;
  /** Without one, there is no feed here. */
  readonly feed?: Feed;
  /** Without one, there are no pages for people here but /docs. */
  readonly dashboard?: Dashboard;
  /** How often the token of a feed is looked at again. Defaults to 5,000. */
  readonly tokenCheckMs?: number;
  /** Other endpoints to be served in the same way. Defaults to none. */
  readonly endpoints?: readonly Endpoint[];
  /** Pages of the dashboard that those endpoints are for. Defaults to none. */
  readonly pages?: readonly string[];
  /** Defaults to silence. */
  readonly logger?: Logger;
  /** Defaults to the clock of the process. */
  readonly clock?: Clock;
}

export interface HttpApi {
  readonly metrics: HttpMetrics;
  /** Answers any request; never rejects. */
  readonly fetch: (request: Request) => Promise<Response>;
  /** Says at /readyz that nobody should send more. What is under way goes on. */
  readonly drain: () => void;
}

const OPEN_PLACES: readonly OpenPlace[] = [
  {
    path: "/healthz",
    summary: "Whether the process answers",
    type: "application/json",
    answers: { 200: "It does" },
  },
  {
    path: "/readyz",
    summary: "Whether to send requests here",
    type: "application/json",
    answers: { 200: "Yes", 503: "No: it drains, or its database is away or not migrated" },
  },
  {
    path: "/openapi.json",
    summary: "This description",
    type: "application/json",
    answers: { 200: "OpenAPI 3.1" },
  },
  {
    path: "/docs",
    summary: "This description, for people",
    type: "text/html",
    answers: { 200: "A page" },
  },
];

/** The REST API as a function from requests to answers. Opens no port. */
export function createHttpApi(context: HttpApiContext, limits: HttpLimits = {}): HttpApi {
  const { mill, tenants, authenticator, logger = silentLogger, clock = systemClock } = context;
  const resolved = resolveHttpLimits(limits);
  const metrics = new HttpMetrics();
  const waits = new Waits(resolved.waitsMax, metrics);
  const { callsPerSecond: perSecond, callsBurst: burst } = resolved;
  const answering: AnsweringContext = {
    mill,
    tenants,
    authenticator,
    limits: resolved,
    limiter: new RateLimiter({ perSecond, burst }, clock),
    waits,
    logger,
    metrics,
    clock,
    bodies: new Budget(resolved.bodiesBytesMax),
  };
  const readiness = new ReadinessCheck(mill, clock, logger);
  const endpoints = endpointsOf(context, answering);
  const app = new Hono();
  addOpenPlaces(app, endpoints, readiness);
  addEndpoints(app, answering, endpoints, context.dashboard);
  return {
    metrics,
    fetch: async (request) => secure(await app.fetch(request)),
    drain: () => readiness.drain(),
  };
}

function endpointsOf(context: HttpApiContext, answering: AnsweringContext): Endpoint[] {
  const { mill, tenants, desk, feed, tokenCheckMs, endpoints = [], pages = [] } = context;
  const { limits, waits, clock } = answering;
  const recheck = tokenCheckMs === undefined ? {} : { recheckMs: tokenCheckMs };
  const codeq = { mill, tenants, limits, waits };
  return [
    ...meEndpoints(pages),
    ...taskEndpoints(limits, waits),
    ...(desk === undefined ? [] : claimEndpoints(desk, limits, waits)),
    ...queueEndpoints(mill),
    ...deadLetterEndpoints,
    ...scheduleEndpoints,
    ...webhookEndpoints,
    ...subscriptionEndpoints,
    ...eventEndpoints(mill),
    ...consumerEndpoints(mill),
    ...gapEndpoints(mill),
    ...clusterEndpoints(mill, clock),
    ...auditEndpoints(mill),
    ...quotaEndpoints(mill),
    ...keyEndpoints(mill),
    ...(feed === undefined ? [] : feedEndpoints(feed, { ...answering, ...recheck })),
    ...endpoints,
    ...codeqTaskEndpoints(codeq),
    ...codeqAdminEndpoints(codeq),
    ...codeqSubscriptionEndpoints,
    ...(desk === undefined ? [] : codeqClaimEndpoints(codeq, desk)),
  ];
}

function addOpenPlaces(app: Hono, endpoints: readonly Endpoint[], readiness: ReadinessCheck): void {
  const document = describe(endpoints, OPEN_PLACES);
  const json = JSON.stringify(document);
  const { html, policy } = writeDocsPage(document);
  app.get("/healthz", (c) => c.json({ status: "ok" }));
  app.get("/readyz", async (c) => {
    const state = await readiness.look();
    return c.json({ status: state }, state === "ready" ? 200 : 503);
  });
  app.get("/openapi.json", (c) => c.body(json, 200, { "content-type": "application/json" }));
  app.get("/docs", (c) =>
    c.body(html, 200, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": policy,
    }),
  );
}

function addEndpoints(
  app: Hono,
  context: AnsweringContext,
  endpoints: readonly Endpoint[],
  dashboard: Dashboard | undefined,
): void {
  const { logger } = context;
  const methods = new Map(OPEN_PLACES.map(({ path }) => [path, ["GET"]]));
  for (const one of endpoints) {
    const { path } = one;
    const method = one.method.toUpperCase();
    methods.set(path, [...(methods.get(path) ?? []), method]);
    app.on(method, path, (c) => answer(context, one, c.req.raw, c.req.param()));
  }
  for (const [path, allowed] of methods) {
    const errors = path.startsWith("/v1/codeq/") ? "codeq" : "problem";
    app.all(path, ({ req }) =>
      refuse(wrongMethod(allowed), requestIdOf(req.raw.headers), { errors, logger }),
    );
  }
  // Last: whatever the server itself has at a path holds over a page.
  app.notFound(
    ({ req }) =>
      dashboard?.answer(req.raw) ??
      refuse(noSuchPath(), requestIdOf(req.raw.headers), { errors: "problem", logger }),
  );
  app.onError((error, { req }) =>
    refuse(error, requestIdOf(req.raw.headers), { errors: "problem", logger }),
  );
}
