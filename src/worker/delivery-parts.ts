import { type Clock, wallClock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { Database } from "../db/database.ts";
import { EgressGuard } from "../delivery/egress/guard.ts";
import { HttpJobs } from "../delivery/jobs/http-jobs.ts";
import type { ResolvedHttpJobs } from "../delivery/jobs/options.ts";
import type { DeliveryMetrics } from "../delivery/metrics.ts";
import { NoticeSender } from "../delivery/notices/notice-sender.ts";
import { type DeliverOptions, resolveDeliverOptions } from "../delivery/options.ts";
import { DeliverySender } from "../delivery/sender.ts";

/** How late a webhook may be that nobody announces. */
const DELIVERY_POLL_MS = 500;
/** How late a subscriber is told of work that nobody announces. */
const NOTICE_POLL_MS = 1_000;
/** However much is enqueued, it is looked for work to tell of no more often than this. */
const NOTICE_LOOK_MS = 200;
/** And no more than a tenth of the time. */
const NOTICE_REST_FACTOR = 9;
/** Longer transactions that enqueue are told of later. */
const NOTICE_LAG_MS = 1_000;
/** By how much. */
const NOTICE_WHOLE_MS = 5_000;

/** What every part has that calls others. */
export interface DeliveryMember {
  readonly clock: Clock;
  /** Between 0 and 1, for jitter. */
  readonly random: () => number;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

export interface Senders {
  readonly sender: DeliverySender | undefined;
  readonly notices: NoticeSender | undefined;
}

/** Those that send webhooks and notices, in a worker that does. */
export function buildSenders(
  db: Database | undefined,
  deliver: boolean | DeliverOptions,
  drainMs: number,
  member: DeliveryMember,
): Senders {
  const options = resolveDeliverOptions(deliver);
  if (options === undefined || db === undefined) return { sender: undefined, notices: undefined };
  const shared = { ...options, ...member, wallClock, drainMs };
  const guard = (): EgressGuard => new EgressGuard(options.egress, member.clock);
  return {
    sender: new DeliverySender(db, { ...shared, guard: guard(), pollMs: DELIVERY_POLL_MS }),
    notices: new NoticeSender(db, {
      ...shared,
      guard: guard(),
      pollMs: NOTICE_POLL_MS,
      lookMs: NOTICE_LOOK_MS,
      restFactor: NOTICE_REST_FACTOR,
      lagMs: NOTICE_LAG_MS,
      wholeMs: NOTICE_WHOLE_MS,
    }),
  };
}

/** What makes the calls of tasks, in a worker that does. */
export function buildJobs(
  db: Database | undefined,
  options: ResolvedHttpJobs | undefined,
  member: DeliveryMember & { readonly agingSeconds: number },
): HttpJobs | undefined {
  if (options === undefined || db === undefined) return undefined;
  const guard = new EgressGuard(options.egress, member.clock);
  return new HttpJobs(db, options, { ...member, guard, wallClock });
}
