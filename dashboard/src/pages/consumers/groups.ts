import type { Consumer } from "../../api/types.ts";
import { wholeOf } from "./progress.ts";

/** A consumer with all of its partitions; one that is not split is its only one. */
export interface ConsumerGroup {
  readonly name: string;
  readonly partitions: readonly Consumer[];
  /** What they are together. */
  readonly whole: Consumer;
}

/** In the order of their first partitions. */
export function groupsOf(consumers: readonly Consumer[]): ConsumerGroup[] {
  const parts = new Map<string, Consumer[]>();
  for (const one of consumers) {
    const name = wholeOf(one.name);
    parts.set(name, [...(parts.get(name) ?? []), one]);
  }
  return [...parts].flatMap(([name, partitions]) => {
    const [only] = partitions;
    if (only === undefined) return [];
    if (partitions.length === 1) return [{ name: only.name, partitions, whole: only }];
    const sorted = partitions.toSorted((a, b) => indexOf(a) - indexOf(b));
    return [{ name, partitions: sorted, whole: together(name, sorted) }];
  });
}

const indexOf = ({ name }: Consumer): number => Number(/\/(\d+)$/.exec(name)?.[1] ?? 0);

/** The worst first: the whole is as its worst partition. */
const STATES = ["quarantined", "paused", "unassigned", "running"] as const;

function together(name: string, partitions: readonly Consumer[]): Consumer {
  const sum = (of: (one: Consumer) => number): number =>
    partitions.reduce((all, one) => all + of(one), 0);
  const state = STATES.find((one) => partitions.some((part) => part.state === one)) ?? "running";
  const reason = partitions.find((part) => part.state === state)?.reason;
  const ages = partitions.flatMap(({ lagSeconds }) => lagSeconds ?? []);
  const workers = new Set(partitions.map(({ workerId }) => workerId));
  const [workerId] = workers;
  const positions = partitions.map(({ checkpoint }) => BigInt(checkpoint));
  return {
    name,
    checkpoint: String(positions.reduce((low, one) => (one < low ? one : low))),
    lag: String(partitions.reduce((all, { lag }) => all + BigInt(lag), 0n)),
    ...(ages.length === 0 ? {} : { lagSeconds: Math.max(...ages) }),
    ...(workers.size === 1 && workerId !== undefined ? { workerId } : {}),
    state,
    ...(reason === undefined ? {} : { reason }),
    parkedStreams: sum(({ parkedStreams }) => parkedStreams),
    parkedEvents: sum(({ parkedEvents }) => parkedEvents),
    isParkedCut: partitions.some(({ isParkedCut }) => isParkedCut),
  };
}

/** "2 quarantined, 1 paused", of those that do not run; "" when all of them do. */
export function describeStopped(partitions: readonly Consumer[]): string {
  return STATES.filter((state) => state !== "running")
    .map((state) => [partitions.filter((part) => part.state === state).length, state] as const)
    .filter(([count]) => count > 0)
    .map(([count, state]) => `${count} ${state}`)
    .join(", ");
}
