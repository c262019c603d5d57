import type { ReactNode } from "react";
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

/** What was fetched; meanwhile that it is, and else why it cannot be. */
export function Loaded<T>({ query, children }: LoadedProps<T>) {
  const { data, error, refetch } = query;
  if (data !== undefined) return children(data);
  if (error === null) return <Empty>Loading…</Empty>;
  return (
    <div role="alert" className="flex flex-wrap items-center gap-3 px-4 py-4 text-bad">
      <span>{error.message}</span>
      <Button onClick={() => void refetch()}>Try again</Button>
    </div>
  );
}
