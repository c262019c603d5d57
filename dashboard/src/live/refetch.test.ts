import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, it } from "vitest";
import { refetch } from "./refetch.ts";

it("a fetch under way is waited for, and done once more", async () => {
  const client = new QueryClient();
  const signals: AbortSignal[] = [];
  const ends: (() => void)[] = [];
  const queryFn = ({ signal }: { readonly signal: AbortSignal }): Promise<number> => {
    signals.push(signal);
    return new Promise((resolve) => ends.push(() => resolve(signals.length)));
  };
  const queryKey = ["slow"];
  const stop = new QueryObserver(client, { queryKey, queryFn }).subscribe(() => {});
  ends[0]?.();
  await expect.poll(() => client.getQueryData(queryKey)).toBe(1);

  const first = refetch(client, queryKey);
  await expect.poll(() => signals.length).toBe(2);
  const second = refetch(client, queryKey);
  ends[1]?.();
  await first;
  await expect.poll(() => signals.length).toBe(3);
  ends[2]?.();
  await second;
  expect(client.getQueryData(queryKey)).toBe(3);
  expect(signals.map(({ aborted }) => aborted)).toEqual([false, false, false]);
  stop();
  client.clear();
});
