import type { Names } from "../../db/names.ts";
import type { ConsumerRow } from "../sql/admin.ts";
import { type ConsumerStatus, toConsumerStatus } from "../status.ts";
import { beforeSchema, shadowSchema } from "./names.ts";
import { estimate, type Sample } from "./progress.ts";
import type { Rebuild, RebuildState } from "./sql/rebuilds.ts";

export interface RebuildStatus {
  readonly consumer: string;
  readonly id: string;
  readonly state: RebuildState;
  readonly reason: string | undefined;
  readonly startedAt: Date;
  /** When it came to its state. */
  readonly changedAt: Date;
  /** The live tables. */
  readonly tables: readonly string[];
  /** Where the others are: the rebuilt ones, or after a swap those from before. */
  readonly schema: string;
  /** Partitions of the rebuild while it is building. */
  readonly partitions: readonly ConsumerStatus[];
  /** How far it is; undefined when it is not building any more. */
  readonly progress: RebuildProgress | undefined;
}

export interface RebuildProgress {
  /** Where its slowest partition is. */
  readonly position: bigint;
  /** The newest event of the log. */
  readonly head: bigint;
  /** 0 to 1. */
  readonly share: number;
  /** Over the last minute that somebody looked, else since the start. */
  readonly positionsPerSecond: number | undefined;
  /** To the head as it is now. Undefined when it does not move. */
  readonly etaSeconds: number | undefined;
  /** Why it does not go on. */
  readonly stopped: "paused" | "quarantined" | undefined;
  readonly error: string | undefined;
}

interface Facts {
  readonly rebuild: Rebuild;
  /** All consumers. */
  readonly rows: readonly ConsumerRow[];
  /** Partitions of the rebuild among them. */
  readonly own: readonly ConsumerRow[];
  readonly samples: readonly Sample[];
}

export function describeRebuild(names: Names, facts: Facts): RebuildStatus {
  const { rebuild, own } = facts;
  const { id, consumer, state, reason, startedAt, changedAt } = rebuild;
  const partitions = own.map(toConsumerStatus);
  return {
    consumer,
    id,
    state,
    reason,
    startedAt,
    changedAt,
    tables: rebuild.tables.map(({ schema, table }) => `${schema}.${table}`),
    schema: state === "swapped" ? beforeSchema(names, id) : shadowSchema(names, id),
    partitions,
    progress: state === "building" ? describeProgress(facts, partitions) : undefined,
  };
}

function describeProgress(
  { rebuild, rows, samples }: Facts,
  partitions: readonly ConsumerStatus[],
): RebuildProgress {
  const position = samples.at(-1)?.position ?? 0n;
  const head = BigInt(rows[0]?.latest ?? 0);
  const stopped = partitions.find((one) => one.state === "quarantined" || one.state === "paused");
  const state = stopped?.state === "quarantined" ? "quarantined" : "paused";
  return {
    position,
    head,
    share: head === 0n || position >= head ? 1 : Number(position) / Number(head),
    ...estimate(samples, rebuild.startedAt.getTime(), head),
    stopped: stopped === undefined ? undefined : state,
    error: stopped?.poison?.error,
  };
}
