import { useEffect } from "react";
import { Button } from "../ui/button.tsx";

const AGAIN_MS = 5_000;

/** The server does not answer: it is asked again, by itself or at once. */
export function Away({ reason, onRetry }: { reason: string; onRetry: () => void }) {
  useEffect(() => {
    const timer = setInterval(onRetry, AGAIN_MS);
    return () => clearInterval(timer);
  }, [onRetry]);
  return (
    <main className="grid min-h-dvh place-content-center justify-items-center gap-3 p-4">
      <h1 className="text-lg font-semibold">Tidemill does not answer</h1>
      <p role="alert" className="text-bad">
        {reason}
      </p>
      <p className="text-muted">It is asked again every five seconds.</p>
      <Button kind="primary" onClick={onRetry}>
        Try again
      </Button>
    </main>
  );
}
