import { useLive, useLiveStore, useNow } from "../live/hooks.ts";
import { Button } from "./button.tsx";

/** Whether what is shown is the present. */
export function ConnectionState() {
  const { connection, status } = useLive();
  const store = useLiveStore();
  return (
    <div role="status" className="flex items-center gap-2 text-xs">
      <Dot isLive={connection.state === "live"} />
      {connection.state === "live" ? <span className="text-good">Live</span> : null}
      {connection.state === "connecting" ? (
        <span className="text-muted">
          {status?.feedHeld === undefined ? "Connecting…" : "Connected; the feed is held"}
        </span>
      ) : null}
      {connection.state === "refused" ? (
        <span className="text-bad">Not live: {connection.reason}</span>
      ) : null}
      {connection.state === "lost" ? (
        <>
          <Lost retryAtMs={connection.retryAtMs} />
          <Button kind="quiet" onClick={() => store.hurry()}>
            Try now
          </Button>
        </>
      ) : null}
    </div>
  );
}

function Dot({ isLive }: { isLive: boolean }) {
  return (
    <span
      aria-hidden="true"
      className={`inline-block size-2 rounded-full ${isLive ? "bg-good" : "bg-warn"}`}
    />
  );
}

function Lost({ retryAtMs }: { retryAtMs: number }) {
  const now = useNow();
  const left = Math.max(0, Math.ceil(retryAtMs / 1000 - now));
  return (
    <span className="text-warn">
      Not live<span aria-hidden="true">; tries again in {left} s</span>
    </span>
  );
}
