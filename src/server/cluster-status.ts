import { readFailingSchedules } from "../schedules/sql/schedules.ts";
import type { Tidemill } from "../worker/tidemill.ts";

const FAILING_MAX = 20;

/** How the cluster is, as the dashboard and `GET /v1/status` show it. */
export async function clusterStatus(mill: Tidemill): Promise<object> {
  const [status, queues, failingSchedules] = await Promise.all([
    mill.status(),
    mill.queues.list(),
    readFailingSchedules(mill.engine.db, FAILING_MAX),
  ]);
  return { ...status, queues, failingSchedules };
}
