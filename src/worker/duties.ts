import type { Logger } from "../base/log.ts";
import type { LeaderDuty } from "../cluster/leader.ts";
import { forgetActs } from "../cluster/sql/audit-log.ts";
import { forgetGapRecords } from "../consumers/sql/batch.ts";
import type { Database } from "../db/database.ts";
import { forgetSubscriptions } from "../delivery/notices/sql/subscriptions.ts";
import { forgetDeliveries } from "../delivery/sql/deliveries.ts";
import { createEventPartitions } from "../events/sql/preconditions.ts";
import { moveBuckets } from "../tasks/bucket-moves.ts";
import { FeedBroom } from "../tasks/feed-broom.ts";
import { dropHistory, makeHistoryPartitions, sumTally } from "../tasks/sql/housekeeping.ts";
import { removeExpiredIdempotencyKeys } from "../tasks/sql/idempotency.ts";
import { freeLostLimits } from "../tasks/sql/limits.ts";
import type { ResolvedWorkerOptions } from "./options.ts";

import type { WorkerContext } from "./worker-context.ts";

const AUDIT_DAYS = 30;
const ACTS_DAYS = 365;
const ACTS_PER_RUN = 10_000;
const PARTITION_CHECK_MS = 10_000;
const HOUSEKEEPING_MS = 30_000;
const HISTORY_MS = 3_600_000;
const PARTITION_DAYS_AHEAD = 2;
const TALLY_MS = 10_000;
const LIMITS_MS = 10_000;
const KEYS_PER_RUN = 10_000;
const DELIVERIES_PER_RUN = 10_000;
const FEED_MS = 10_000;
const FEED_SECONDS = 600;

/** What the leader does for all besides assigning: small, idempotent, each in its own time. */
export function leaderDuties(
  db: Database,
  context: WorkerContext,
  options: ResolvedWorkerOptions,
  logger: Logger,
): LeaderDuty[] {
  const { partitioning, compat } = context;
  const audit: LeaderDuty = {
    name: "gap audit retention",
    everyMs: 3_600_000,
    run: () => forgetGapRecords(db, AUDIT_DAYS * 24 * 3600),
  };
  const duties =
    compat === undefined ? [audit, ...taskDuties(db, context, options, logger)] : [audit];
  if (partitioning.strategy === "none") return duties;
  const partitions: LeaderDuty = {
    name: "event partitions",
    everyMs: PARTITION_CHECK_MS,
    run: async () => {
      await createEventPartitions(db, partitioning.size, partitioning.ahead);
    },
  };
  return [...duties, partitions];
}

function taskDuties(
  db: Database,
  context: WorkerContext,
  options: ResolvedWorkerOptions,
  logger: Logger,
): LeaderDuty[] {
  const { historyDays } = options;
  const broom = new FeedBroom(db);
  return [
    {
      name: "buckets",
      everyMs: 0,
      run: (leader) =>
        moveBuckets(db, leader, {
          heartbeatTimeoutMs: options.heartbeatTimeout,
          changesChannel: context.changesChannel,
          logger: logger,
        }),
    },
    {
      name: "limits of lost workers",
      everyMs: LIMITS_MS,
      run: async () => {
        await freeLostLimits(db, options.heartbeatTimeout / 1000);
      },
    },
    { name: "task counts", everyMs: TALLY_MS, run: () => sumTally(db) },
    {
      name: "task history",
      everyMs: HISTORY_MS,
      run: async () => {
        await makeHistoryPartitions(db, PARTITION_DAYS_AHEAD);
        await dropHistory(db, historyDays);
      },
    },
    {
      name: "idempotency keys",
      everyMs: HOUSEKEEPING_MS,
      run: async () => {
        await removeExpiredIdempotencyKeys(db, KEYS_PER_RUN);
      },
    },
    {
      name: "webhook deliveries",
      everyMs: HOUSEKEEPING_MS,
      run: async () => {
        await forgetDeliveries(db, historyDays, DELIVERIES_PER_RUN);
      },
    },
    {
      name: "subscriptions",
      everyMs: HOUSEKEEPING_MS,
      run: async () => {
        await forgetSubscriptions(db, DELIVERIES_PER_RUN);
      },
    },
    { name: "feed", everyMs: FEED_MS, run: () => broom.sweep(FEED_SECONDS) },
    {
      name: "audit log",
      everyMs: HOUSEKEEPING_MS,
      run: () => forgetActs(db, ACTS_DAYS, ACTS_PER_RUN),
    },
  ];
}
