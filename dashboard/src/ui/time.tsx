import { formatDistance, formatInstant } from "../format.ts";
import { useNow } from "../live/hooks.ts";

/** When, as seen from now; the exact instant is told to who asks. */
export function Ago({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={formatInstant(at)} className="whitespace-nowrap">
      {formatDistance(at, now * 1000)}
    </time>
  );
}

export function Instant({ at }: { at: string }) {
  return <time dateTime={at}>{formatInstant(at)}</time>;
}
