import type { FeedRow } from "./feed-row.ts";

/** What somebody may see of the feed, and wants to. */
export interface FeedFilter {
  readonly tenant: string;
  /** Of which queues: what the token allows, or fewer. */
  readonly queues: "all" | ReadonlySet<string>;
  /** Undefined: all. */
  readonly states?: ReadonlySet<string>;
  /** Undefined: all tasks. */
  readonly taskId?: string;
  /** Whether changes of the cluster are told as well. */
  readonly withCluster: boolean;
  /** Whether it is told that something was done that it may see. Defaults to no. */
  readonly withActs?: boolean;
}

/** The same for filters that want the same. */
export function signatureOf(filter: FeedFilter): string {
  const { tenant, queues, states, taskId, withCluster, withActs } = filter;
  const sorted = (names: ReadonlySet<string> | undefined): string[] => [...(names ?? [])].sort();
  const wanted = queues === "all" ? "all" : sorted(queues);
  return JSON.stringify([tenant, wanted, states && sorted(states), taskId, withCluster, withActs]);
}

/** How many messages of a row a filter lets through, if any. */
export const messagesOf = ({ taskId }: FeedFilter, row: FeedRow): number =>
  taskId === undefined ? row.count : 1;

/** Whether anything of a row may be told to somebody, who also wants it. */
export function isWanted(filter: FeedFilter, row: FeedRow): boolean {
  if (row.kind !== "task") return filter.withCluster || isSeen(filter, row);
  // Compared before anything else: nothing of a tenant reaches another.
  if (row.tenant !== filter.tenant) return false;
  if (filter.queues !== "all" && !filter.queues.has(row.queue)) return false;
  return filter.states === undefined || filter.states.has(row.state);
}

/** Whether an act is about what somebody sees: a queue of its token, or what its tenant has. */
function isSeen({ tenant, queues, withActs }: FeedFilter, { act }: FeedRow): boolean {
  if (act === undefined || withActs !== true || act.act.startsWith("cluster.")) return false;
  if (act.queue === undefined) return act.tenant === tenant;
  return queues === "all" || queues.has(act.queue);
}

/** The messages of a row for somebody, but for the first so many changes. "" for none. */
export function textFor(filter: FeedFilter, row: FeedRow, skipped = 0): string {
  if (!isWanted(filter, row)) return "";
  if (row.kind === "task" && filter.taskId !== undefined) {
    return row.textOf(filter.taskId, skipped);
  }
  if (row.kind === "act" && !filter.withCluster) return row.briefAfter(skipped);
  return row.textAfter(skipped);
}
