import { useQuery } from "@tanstack/react-query";
import type { Queue } from "../../api/types.ts";
import { useLive, useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import type { LoadedQuery } from "../../ui/query-state.tsx";

const KEY = ["queues"];

/** Queues by name: as the feed tells an admin, with their counts; else as the server lists them. */
export function useQueues(): LoadedQuery<readonly Queue[]> {
  const { api, may } = useSession();
  const { status, statusAtMs } = useLive();
  const isTold = may("cluster.read");
  const query = useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) =>
      (await api.get<{ queues: readonly Queue[] }>("/v1/queues", {}, signal)).queues,
  });
  // A queue that is new appears with its first task.
  useRefreshOn(KEY, (event) => {
    if (isTold || event.kind !== "summary") return false;
    const known = new Set(query.data?.map(({ name }) => name));
    return event.summary.counts.some(({ queue }) => queue !== null && !known.has(queue));
  });
  // Whichever is newer: what was just done is fetched before the feed tells of it.
  const isNewer = statusAtMs > query.dataUpdatedAt;
  const data = isTold && status !== undefined && isNewer ? status.queues : query.data;
  return { data, error: query.error, refetch: query.refetch };
}

export const depthOf = ({ depths = {} }: Queue): number =>
  Object.values(depths).reduce((sum, count) => sum + count, 0);

/** Live tasks by priority, the highest first, in words. */
export function describeDepths({ depths = {} }: Queue): string {
  return Object.entries(depths)
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([priority, count]) => `${count.toLocaleString("en")} at ${priority}`)
    .join(", ");
}

export function describeLimits({ limits }: Queue): string {
  const { concurrency, rate, keyRate } = limits;
  const parts = [
    ...(concurrency === null ? [] : [`${concurrency} at once`]),
    ...(rate === null ? [] : [`${rate.count} per ${rate.seconds} s`]),
    ...(keyRate === null ? [] : [`${keyRate.count} per ${keyRate.seconds} s of a key`]),
  ];
  return parts.join(", ") || "none";
}
