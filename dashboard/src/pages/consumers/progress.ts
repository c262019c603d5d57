import { catchUpSeconds } from "../../../../src/consumers/catch-up.ts";
import type { Consumer } from "../../api/types.ts";
import { formatRate, formatSeconds } from "../../format.ts";

export interface Progress {
  readonly rate: string;
  /** When it has caught up, if it goes on as now and so does what is appended. */
  readonly eta: string;
  /** The same in seconds, to find the last of several: infinite where it is not in sight. */
  readonly etaSeconds: number;
}

/** Of positions per second; undefined until it is known. */
export interface Pace {
  readonly own: number | undefined;
  readonly appended: number;
}

/** Who is no further behind than it handles in so long follows the log as it grows. */
const FOLLOWS_SECONDS = 5;
const NEVER = Number.POSITIVE_INFINITY;

/** How fast a consumer is, and when it is at the end of the log. */
export function progressOf({ lag, state }: Consumer, { own, appended }: Pace): Progress {
  const behind = Number(lag);
  const rate = own === undefined ? "–" : `${formatRate(own)} per second`;
  if (behind === 0) return { rate, eta: "caught up", etaSeconds: 0 };
  if (state !== "running") return { rate, eta: "stands still", etaSeconds: NEVER };
  if (own === undefined) return { rate, eta: "–", etaSeconds: NEVER };
  if (own > 0 && behind <= own * FOLLOWS_SECONDS) {
    return { rate, eta: "keeps up", etaSeconds: behind / own };
  }
  const etaSeconds = catchUpSeconds(behind, own, appended);
  if (etaSeconds === undefined) return { rate, eta: "not at this rate", etaSeconds: NEVER };
  return { rate, eta: formatSeconds(etaSeconds), etaSeconds };
}

/** Fills the copies of a projection's tables; docs/how-to/rebuild-a-projection.md. */
export const isRebuild = (name: string): boolean => /~rebuild(\/\d+)?$/.test(name);

/** The consumer of a partition: acts are about all of its partitions. */
export const wholeOf = (name: string): string => name.replace(/\/\d+$/, "");
