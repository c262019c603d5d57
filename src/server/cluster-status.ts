import type { Tidemill } from "../worker/tidemill.ts";

/** How the cluster is, as the dashboard and `GET /v1/status` show it. */
export async function clusterStatus(mill: Tidemill): Promise<object> {
  const [status, queues] = await Promise.all([mill.status(), mill.queues.list()]);
  return { ...status, queues };
}
