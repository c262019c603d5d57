import type { ClusterStatus } from "../../api/types.ts";
import type { LiveEvent } from "../../live/events.ts";

/**
 * Tells of each event whether what is parked is to be fetched again: when the feed says that a
 * consumer set streams aside, replays or handled them, and when a status counts otherwise than the
 * one before. What is shown is no measure: it is of the newest streams only, and those that fail
 * again are as many as they were.
 *
 * @param known the status of the moment, if there is one
 */
export function parkedWatch(known: ClusterStatus | undefined): (event: LiveEvent) => boolean {
  let told = known === undefined ? undefined : countsOf(known);
  return (event) => {
    if (event.kind === "cluster") return event.about === "consumer";
    if (event.kind !== "status") return false;
    const before = told;
    told = countsOf(event.status);
    return told !== before;
  };
}

const countsOf = ({ consumers }: ClusterStatus): string =>
  consumers
    .filter(({ parkedStreams }) => parkedStreams > 0)
    .map(({ name, parkedStreams, parkedEvents }) => `${name} ${parkedStreams} ${parkedEvents}`)
    .join("\n");
