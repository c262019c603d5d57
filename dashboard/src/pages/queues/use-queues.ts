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
  if (isTold && status !== undefined && isNewer) {
    return { data: status.queues, error: null, refetch: query.refetch };
  }
  return { data: query.data, error: query.error, refetch: query.refetch };
}
