import type { Scene } from "../../checker/scene.ts";
import { httpQueue } from "../../tasks/http-queue.ts";
import { type Queue, queue } from "../../tasks/queue.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { ORDER, PAID, PLACED, REFUNDED, SHIPPED } from "./orders.ts";

/* What the shop is made of, for the process that runs it and for those that do its work. */

/** What each consumer of the demo handles. */
export const DEMO_SCOPES: Readonly<Record<string, readonly string[]>> = {
  order_view: [PLACED, PAID, SHIPPED, REFUNDED],
  revenue: [PAID],
  shipping: [SHIPPED],
};

/** A letter to a customer. */
export interface Letter {
  /** Nobody else carries it: so the scoreboard tells tasks apart. */
  readonly name: string;
  readonly order: string;
  readonly cents: number;
}

export interface Label {
  readonly name: string;
  readonly order: string;
  readonly to: string;
}

/** Lost workers count as attempts, and here they are lost for fun. */
const PATIENT = { maxAttempts: 100, maxLosses: 100 } as const;
const SOON = { kind: "fixed", baseSeconds: 1 } as const;
/** Receipt and refund of one order are in one line, although they are in two queues. */
const ORDERS = "orders";

export const receipts = queue<Letter>("receipts", { keySpace: ORDERS, backoff: SOON, ...PATIENT });
export const refunds = queue<Letter>("refunds", { keySpace: ORDERS, backoff: SOON, ...PATIENT });
export const reports = queue<null>("reports", { backoff: SOON, ...PATIENT });

/** Its tasks are HTTP calls to the courier, who does not always answer well. */
export function labelsTo(targetUrl: string): Queue<Label> {
  return httpQueue<Label>("labels", {
    maxAttempts: 3,
    backoff: SOON,
    timeoutSeconds: 5,
    http: { targetUrl },
  });
}

export const LABELS = "labels";
/** What the shop promises, each with a name of its own. */
export const NAMED_QUEUES: readonly string[] = [receipts.name, refunds.name, LABELS];

export const REPORT = "report";
/** With seconds: a report that nobody sees come is no demo. */
export const REPORT_CRON = "*/10 * * * * *";

export const LEASE_SECONDS = 5;
/** A worker that is gone is missed after seconds: who killed it is watching. */
export const CLUSTER = {
  heartbeatInterval: 1_000,
  heartbeatTimeout: 5_000,
  rebalanceInterval: 1_000,
  dispatcherStrategy: "notify",
} as const satisfies WorkerOptions;

/** Appends are announced here, which is where workers listen unless they are told otherwise. */
export const CHANNEL = "worker_events";

/** What the rules have to know of the shop. What consumers owe grows with the log. */
export const SCENE: Omit<Scene, "consumers"> = {
  isNamed: (name) => NAMED_QUEUES.includes(name),
  hasEffect: (name) => name === receipts.name || name === refunds.name,
  isOrderedByEnd: () => false,
  keySpaceOf: (name) => (name === receipts.name || name === refunds.name ? ORDERS : name),
  leaseSeconds: LEASE_SECONDS,
  limits: {},
  tickMs: 10_000,
};

export const STREAM_TYPE = ORDER;
