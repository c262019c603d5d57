import { useQuery } from "@tanstack/react-query";
import type { Ring, RingLoad } from "../../api/types.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";

/** It looks at tasks, which is not done all the time. */
const LOAD_REFRESH_MS = 5_000;

/** Where the tasks of a key space are; fetched again when the feed tells of tasks of its queues. */
export function useRingLoad(ring: Ring | undefined): RingLoad | undefined {
  const { api } = useSession();
  const { keySpace = "", tenant = "" } = ring ?? {};
  const queryKey = ["ring-load", keySpace, tenant];
  const { data } = useQuery({
    queryKey,
    queryFn: ({ signal }) => api.get<RingLoad>("/v1/ring/load", { keySpace, tenant }, signal),
    enabled: ring !== undefined,
  });
  useRefreshOn(
    queryKey,
    (event) =>
      event.kind === "summary" &&
      event.summary.counts.some(({ queue }) => queue === null || ring?.queues.includes(queue)),
    LOAD_REFRESH_MS,
  );
  return data;
}
