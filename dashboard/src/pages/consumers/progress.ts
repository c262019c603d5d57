import type { Consumer } from "../../api/types.ts";
import { formatRate, formatSeconds } from "../../format.ts";

export interface Progress {
  readonly rate: string;
  /** When it has caught up, if it goes on as now. */
  readonly eta: string;
}

/** How fast a consumer is, and when it is where the log ends now. */
export function progressOf({ lag, state }: Consumer, perSecond: number | undefined): Progress {
  const behind = Number(lag);
  const rate = perSecond === undefined ? "–" : `${formatRate(perSecond)} per second`;
  if (behind === 0) return { rate, eta: "caught up" };
  if (state !== "running") return { rate, eta: "stands still" };
  if (perSecond === undefined) return { rate, eta: "–" };
  return { rate, eta: perSecond === 0 ? "not at this rate" : formatSeconds(behind / perSecond) };
}

/** Fills the copies of a projection's tables; docs/how-to/rebuild-a-projection.md. */
export const isRebuild = (name: string): boolean => /~rebuild(\/\d+)?$/.test(name);

/** The consumer of a partition: acts are about all of its partitions. */
export const wholeOf = (name: string): string => name.replace(/\/\d+$/, "");
