import { reading, type SimStatements } from "./statement.ts";

const NONE: readonly object[] = [];
const nothing = reading(() => NONE);

/** src/db/sql, and the look of the dispatcher. */
export const sessionStatements: SimStatements = {
  server_facts: reading(({ session }) => [
    { in_recovery: false, version: 160_000, pid: session.pid },
  ]),
  connection_alive: reading(() => [{}]),
  shape_plans: nothing,
  shape_plans_here: nothing,
  lock_timeout: reading(({ run, session }, [patience, isLocal]) => {
    const ms = Number.parseInt(String(patience), 10);
    if (isLocal === true) run.tx.lockTimeoutMs = ms;
    else session.lockTimeoutMs = ms;
    return NONE;
  }),
  notify: reading(({ run }, [channel, payload]) => {
    run.tx.notices.push({ channel: String(channel), payload: String(payload) });
    return NONE;
  }),
  frontier_ceiling: reading(({ run }) => [{ ceiling: String(run.lastNumber) }]),
  *frontier_fence({ run, tables }) {
    yield* run.updateAll(
      tables.fences,
      () => true,
      () => ({ drawnAt: run.clock }),
    );
    return [{ fence: String(run.xid) }];
  },
  pulse: reading(({ run, tables }) => [
    {
      changes: String(run.rows(tables.changes)[0]?.version ?? 0),
      latest: null,
      task_number: String(run.lastNumber),
    },
  ]),
};

/** Duties of the leader that touch nothing of what is simulated. */
export const otherStatements: SimStatements = {
  gap_records_forget: nothing,
  limits_free_lost: nothing,
  tasks_tally: nothing,
  history_partitions: nothing,
  history_drop: nothing,
  idempotency_expire: nothing,
  deliveries_forget: nothing,
  feed_forget: nothing,
  subscriptions_forget: nothing,
  audit_forget: nothing,
};
