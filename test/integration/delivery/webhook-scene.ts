import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { expect } from "vitest";
import { type Clock, systemClock, wallClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { EgressGuard } from "../../../src/delivery/egress/guard.ts";
import { DeliveryMetrics } from "../../../src/delivery/metrics.ts";
import { type DeliverOptions, resolveDeliverOptions } from "../../../src/delivery/options.ts";
import { DeliverySender } from "../../../src/delivery/sender.ts";
import {
  callSecret,
  type Logger,
  queue,
  type Tidemill,
  verifyWebhook,
  type WebhookDelivery,
} from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import { type ServerPlace, serve, type TestServer } from "../../support/http-server.ts";

export const mails = queue("mails");

export interface WebhookScene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

export async function newScene(): Promise<WebhookScene> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

/** A message as it arrived. */
export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Receiver {
  readonly port: number;
  readonly received: Received[];
  /** Of a host that senders of {@link startSender} know. */
  url(path?: string, host?: string): string;
}

type Answer = (response: ServerResponse, message: Received, count: number) => void;

/** Keeps what arrives, and answers 204 unless told otherwise. */
export async function receiver(
  answer: Answer = (response) => void response.writeHead(204).end(),
  place: ServerPlace = {},
): Promise<Receiver> {
  const received: Received[] = [];
  const server: TestServer = await serve((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const message = { path: request.url ?? "", headers: request.headers, body };
      received.push(message);
      answer(response, message, received.length);
    });
  }, place);
  const scheme = place.tls === undefined ? "http" : "https";
  return {
    port: server.port,
    received,
    url: (path = "/", host = "hooks.test") => `${scheme}://${host}:${server.port}${path}`,
  };
}

export interface SenderSettings extends DeliverOptions {
  /** The database, by another way. */
  readonly url?: string;
  readonly logger?: Logger;
  readonly drainMs?: number;
  readonly clock?: Clock;
}

export interface RunningSender {
  readonly metrics: DeliveryMetrics;
  readonly stopClaiming: () => void;
  readonly stop: () => Promise<void>;
}

/** A sender as one process has it: any host is this machine, and `*.hooks.test` may be called. */
export function startSender(
  { database }: WebhookScene,
  ports: readonly number[],
  given: SenderSettings = {},
): RunningSender {
  const { url = database.url, logger = silentLogger, drainMs = 5_000, ...others } = given;
  const { clock = systemClock, ...settings } = others;
  const db = engineDatabase(url);
  const options = resolveDeliverOptions({
    ...settings,
    egress: {
      allowHttp: true,
      ports,
      allowHosts: ["hooks.test", "*.hooks.test"],
      resolve: async () => ["127.0.0.1"],
      ...settings.egress,
    },
  });
  if (options === undefined) throw new Error("a sender that sends nothing");
  const metrics = new DeliveryMetrics();
  const sender = new DeliverySender(db, {
    ...options,
    guard: new EgressGuard(options.egress, systemClock),
    pollMs: 20,
    drainMs,
    clock,
    wallClock,
    random: () => 0.5,
    logger,
    metrics,
  });
  const supervisor = new Supervisor([sender]);
  const stop = async (): Promise<void> => {
    await supervisor.stop();
    await db.close();
  };
  onCleanup(stop);
  return { metrics, stopClaiming: () => sender.stopClaiming(), stop };
}

/** Ends a task the quickest way: it is cancelled before it runs. */
export async function endTask(
  { mill }: WebhookScene,
  webhook: string,
  options: { readonly tenant?: string; readonly reason?: string } = {},
): Promise<string> {
  const { reason = "not needed", ...task } = options;
  const { id } = await mill.enqueue(mails, null, { webhook, ...task });
  await mill.tasks.cancel(id, { reason });
  return id;
}

export async function deliveryOf(
  { mill }: WebhookScene,
  taskId: string,
  tenant = "default",
): Promise<WebhookDelivery> {
  const found = await mill.webhooks.deliveries(tenant, { taskId });
  expect(found).toHaveLength(1);
  const [delivery] = found;
  if (delivery === undefined) throw new Error(`no delivery of task ${taskId}`);
  return delivery;
}

/** Looks until the delivery of the task is in the state. */
export async function deliveryIn(
  scene: WebhookScene,
  taskId: string,
  state: WebhookDelivery["state"],
  tenant?: string,
): Promise<WebhookDelivery> {
  return await eventually(async () => {
    const delivery = await deliveryOf(scene, taskId, tenant);
    expect(delivery).toMatchObject({ state });
    return delivery;
  });
}

/** Moves time: what waits for its next attempt, or for a lease to end, is due. */
export async function letTimePass({ database }: WebhookScene): Promise<void> {
  await database.pool.query("UPDATE tidemill.webhook_deliveries SET next_at = NOW()");
}

/** Throws unless the secret of the endpoint signed the message. */
export async function expectSigned(
  { mill }: WebhookScene,
  message: Received | undefined,
  endpoint: string,
  tenant = "default",
): Promise<void> {
  const secrets = await mill.webhooks.secrets(tenant, endpoint);
  const texts = secrets.map((secret) => secret.reveal());
  for (const text of texts) verify(message, text);
}

/** Throws unless the call was signed in the name of the endpoint, and no webhook of it. */
export async function expectCallSigned(
  { mill }: WebhookScene,
  message: Received | undefined,
  endpoint: string,
): Promise<void> {
  const secrets = await mill.webhooks.secrets("default", endpoint);
  for (const secret of secrets) {
    verify(message, callSecret(secret.reveal()));
    expect(() => verify(message, secret.reveal())).toThrow("no signature fits");
  }
}

function verify(message: Received | undefined, secret: string): void {
  const header = (name: string): string => String(message?.headers[name]);
  const headers = {
    "webhook-id": header("webhook-id"),
    "webhook-timestamp": header("webhook-timestamp"),
    "webhook-signature": header("webhook-signature"),
  };
  verifyWebhook(headers, message?.body ?? "", [secret], new Date());
}
