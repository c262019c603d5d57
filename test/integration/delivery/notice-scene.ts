import { expect } from "vitest";
import { systemClock, wallClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { EgressGuard } from "../../../src/delivery/egress/guard.ts";
import { DeliveryMetrics } from "../../../src/delivery/metrics.ts";
import { NoticeSender } from "../../../src/delivery/notices/notice-sender.ts";
import { resolveDeliverOptions } from "../../../src/delivery/options.ts";
import type { Logger, Subscription, SubscriptionOptions } from "../../../src/index.ts";
import { onCleanup } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { eventually } from "../../support/eventually.ts";
import type { Received, Receiver, WebhookScene } from "./webhook-scene.ts";

export interface NoticeSettings {
  readonly pollMs?: number;
  readonly lagMs?: number;
  readonly wholeMs?: number;
  readonly callSeconds?: number;
  readonly drainMs?: number;
  readonly concurrency?: number;
  readonly logger?: Logger;
}

export interface RunningNotices {
  readonly sender: NoticeSender;
  readonly metrics: DeliveryMetrics;
  readonly stop: () => Promise<void>;
}

/** A sender as one process has it: any host is this machine, `*.hooks.test` may be called. */
export function startNotices(
  { database }: WebhookScene,
  receivers: readonly Receiver[],
  given: NoticeSettings = {},
): RunningNotices {
  const { callSeconds = 5, concurrency = 64 } = given;
  const db = engineDatabase(database.url, { queryTimeoutMs: 5_000 });
  const options = resolveDeliverOptions({
    concurrency,
    egress: {
      allowHttp: true,
      ports: receivers.map(({ port }) => port),
      allowHosts: ["hooks.test", "*.hooks.test"],
      resolve: async () => ["127.0.0.1"],
      callSeconds,
    },
  });
  if (options === undefined) throw new Error("a sender that sends nothing");
  const metrics = new DeliveryMetrics();
  const sender = new NoticeSender(db, {
    ...options,
    guard: new EgressGuard(options.egress, systemClock),
    pollMs: given.pollMs ?? 20,
    lookMs: 10,
    restFactor: 1,
    lagMs: given.lagMs ?? 0,
    wholeMs: given.wholeMs ?? 100,
    drainMs: given.drainMs ?? 5_000,
    clock: systemClock,
    wallClock,
    random: () => 0.5,
    logger: given.logger ?? silentLogger,
    metrics,
  });
  const supervisor = new Supervisor([sender]);
  const stop = async (): Promise<void> => {
    await supervisor.stop();
    await db.close();
  };
  onCleanup(stop);
  return { sender, metrics, stop };
}

export interface Told {
  readonly id: string;
  readonly type: string;
  readonly data: {
    readonly subscription: string;
    readonly tenant: string;
    readonly queues: readonly { readonly queue: string; readonly waiting: number }[];
  };
}

export const read = (message: Received | undefined): Told => JSON.parse(message?.body ?? "null");

/** Of which queues the receiver was told, in the order of its notices. */
export const toldOf = ({ received }: Receiver): string[] =>
  received.map((message) =>
    read(message)
      .data.queues.map(({ queue }) => queue)
      .join(),
  );

/** Looks until the receiver has so many notices, and no more. */
export async function hasBeenTold(receiver: Receiver, count: number): Promise<void> {
  await eventually(() => expect(receiver.received).toHaveLength(count));
}

export async function subscribe(
  { mill }: WebhookScene,
  options: SubscriptionOptions,
  tenant = "default",
): Promise<Subscription> {
  return (await mill.subscriptions.add(tenant, options)).subscription;
}

/** Moves time, once no call is under way: intervals, pauses and turns are over. */
export async function endIntervals(scene: WebhookScene): Promise<void> {
  await eventually(async () => {
    const { rows } = await scene.database.pool.query(
      "SELECT id FROM tidemill.subscriptions WHERE claim_id IS NOT NULL",
    );
    expect(rows).toEqual([]);
  });
  await endLeases(scene);
}

/** The same, also of calls that seem to be under way. */
export async function endLeases({ database }: WebhookScene): Promise<void> {
  await database.pool.query("UPDATE tidemill.subscription_turns SET next_at = NOW()");
  await database.pool.query("UPDATE tidemill.subscriptions SET next_at = NOW()");
}

let probes = 0;

/**
 * Resolves when everybody who is due was looked at, beginning after now: somebody who comes after
 * all others was told, twice.
 */
export async function looked(scene: WebhookScene, probe: Receiver): Promise<void> {
  const tenant = "~probe";
  for (let round = 0; round < 2; round += 1) {
    const queue = `probe-${(probes += 1)}`;
    await scene.mill.queues.ensure(queue);
    await scene.mill.enqueue(queue, 1, { tenant });
    const { id } = await subscribe(scene, { url: probe.url("/probe"), queues: [queue] }, tenant);
    await eventually(() => expect(toldOf(probe)).toContain(queue));
    await scene.mill.subscriptions.remove(tenant, id);
  }
}
