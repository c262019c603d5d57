import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";

export type WorkerState =
  | "starting"
  | "running"
  | "paused"
  | "stopping"
  | "stopped"
  | "killed"
  | "failed";

export interface ShopWorker {
  readonly name: string;
  readonly pid?: number;
  readonly workerId?: string;
  readonly state: WorkerState;
}

export const MOODS = ["flaky", "good", "down"] as const;
export type Mood = (typeof MOODS)[number];

export interface Score {
  readonly lost: number;
  readonly doubled: number;
  readonly outOfOrder: number;
  readonly tasksDone: number;
  readonly eventsDone: number;
  readonly tasksOpen: number;
  readonly findings: readonly string[];
}

/** What `GET /v1/demo` tells. */
export interface Shop {
  /** Events per second. */
  readonly rate: number;
  readonly rateMax: number;
  readonly workers: readonly ShopWorker[];
  readonly workersMax: number;
  readonly leaseSeconds: number;
  readonly heartbeatSeconds: number;
  readonly courier: { readonly mood: Mood; readonly calls: number; readonly refusals: number };
  readonly promised: { readonly orders: number; readonly events: number; readonly tasks: number };
  /** Completions that came too late. */
  readonly refused: number;
  readonly score: Score;
  readonly happenings: readonly { readonly atMs: number; readonly text: string }[];
}

export const SHOP = ["shop"];

/** The shop, again whenever the feed says that something went on: it always does. */
export function useShop(): UseQueryResult<Shop> {
  const { api } = useSession();
  const query = useQuery({
    queryKey: SHOP,
    queryFn: ({ signal }) => api.get<Shop>("/v1/demo", {}, signal),
  });
  useRefreshOn(SHOP, () => true);
  return query;
}
