import type { ReactNode } from "react";
import { ApiError } from "../api/http.ts";
import { Button } from "./button.tsx";
import { Empty } from "./panel.tsx";

/** What is fetched, as far as it is shown. */
export interface LoadedQuery<T> {
  readonly data: T | undefined;
  readonly error: Error | null;
  readonly refetch: () => Promise<unknown>;
}

export interface LoadedProps<T> {
  readonly query: LoadedQuery<T>;
  readonly children: (data: T) => ReactNode;
}

/** What may still be shown and acted on: what is gone on the server is gone here, too. */
export function presentOf<T>({ data, error }: LoadedQuery<T>): T | undefined {
  return error instanceof ApiError && error.status === 404 ? undefined : data;
}

/** What was fetched, and whether it is old; meanwhile that it is, and else why it cannot be. */
export function Loaded<T>({ query, children }: LoadedProps<T>) {
  const { error, refetch } = query;
  const data = presentOf(query);
  // The content keeps its place among the children: dialogs that are open in it stay open.
  return (
    <>
      {error === null ? null : (
        <Failure error={error} isOld={data !== undefined} onRetry={() => void refetch()} />
      )}
      {data === undefined && error === null ? <Empty>Loading…</Empty> : null}
      {data === undefined ? null : children(data)}
    </>
  );
}

interface FailureProps {
  readonly error: Error;
  /** Whether what was there before is still shown. */
  readonly isOld: boolean;
  readonly onRetry: () => void;
}

function Failure({ error, isOld, onRetry }: FailureProps) {
  const look = `flex flex-wrap items-center gap-3 px-4 py-4 ${isOld ? "text-warn" : "text-bad"}`;
  return (
    <div role={isOld ? "status" : "alert"} className={look}>
      <span>
        {isOld ? "This could not be refreshed: " : ""}
        {error.message}
      </span>
      <Button onClick={onRetry}>Try again</Button>
    </div>
  );
}
