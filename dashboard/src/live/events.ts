import type { ClusterStatus, TaskState } from "../api/types.ts";

/** What became of one task. */
export interface TaskChange {
  readonly id: string;
  readonly queue: string;
  readonly tenant: string;
  readonly state: TaskState | "purged";
  readonly attempt: number;
  readonly at: string;
  readonly worker?: string;
  readonly reason?: string;
}

/** What became of how many tasks, within a quarter of a second. */
export interface FeedSummary {
  readonly at: string;
  readonly counts: readonly {
    readonly queue: string | null;
    readonly state: TaskState | "purged";
    readonly count: number;
  }[];
  readonly retries: number;
  readonly waitMs?: readonly number[];
  readonly runMs?: readonly number[];
  /** Whether some of it happened while nobody read. */
  readonly isReplay?: boolean;
  /** Whether `changes` has all of them. */
  readonly isComplete: boolean;
  readonly changes: readonly TaskChange[];
}

export type Connection =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  | { readonly state: "lost"; readonly retryAtMs: number; readonly reason: string }
  | { readonly state: "refused"; readonly reason: string };

export type ClusterTopic = "worker" | "consumer" | "ring" | "gap" | "act";

/** What every tab is told, by whoever reads the feed for all of them. */
export type LiveEvent =
  | { readonly kind: "connection"; readonly connection: Connection }
  | { readonly kind: "summary"; readonly atMs: number; readonly summary: FeedSummary }
  | { readonly kind: "status"; readonly atMs: number; readonly status: ClusterStatus }
  | { readonly kind: "cluster"; readonly about: ClusterTopic }
  | { readonly kind: "reset" };

/** A message of the feed as an event; undefined for those that concern nobody. */
export function toLiveEvent(event: string, data: string, atMs: number): LiveEvent | undefined {
  switch (event) {
    case "ready":
      return { kind: "connection", connection: { state: "live" } };
    case "summary":
      return { kind: "summary", atMs, summary: JSON.parse(data) as FeedSummary };
    case "status":
      return { kind: "status", atMs, status: JSON.parse(data) as ClusterStatus };
    case "worker":
    case "consumer":
    case "ring":
    case "gap":
    case "act":
      return { kind: "cluster", about: event };
    case "reset":
    case "lagged":
      return { kind: "reset" };
    default:
      return undefined;
  }
}
