import { formatDistance, formatInstant } from "../format.ts";
import { staleSinceMs } from "../live/freshness.ts";
import { useLive, useNow } from "../live/hooks.ts";

/** Says that what the feed tells of the cluster is old, and as of when; nothing while it is not. */
export function StaleNote({ more = "" }: { more?: string }) {
  const live = useLive();
  const nowMs = useNow() * 1000;
  const sinceMs = staleSinceMs(live, nowMs);
  if (live.status === undefined || sinceMs === undefined) return null;
  return (
    <p className="rounded-lg border border-line bg-warn-soft px-4 py-2.5 text-warn">
      Not current: this is as of {formatDistance(sinceMs, nowMs)}, {formatInstant(sinceMs)}.{more}
    </p>
  );
}
