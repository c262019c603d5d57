import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useRef, useSyncExternalStore } from "react";
import type { LiveEvent } from "./events.ts";
import type { LiveState } from "./live-state.ts";
import { refetch } from "./refetch.ts";
import { Refresh } from "./refresh.ts";
import type { LiveStore } from "./tab-line.ts";

export const LiveContext = createContext<LiveStore | undefined>(undefined);

export function useLiveStore(): LiveStore {
  const store = useContext(LiveContext);
  if (store === undefined) throw new Error("there is no feed outside of a session");
  return store;
}

/** What is known of the present. */
export function useLive(): LiveState {
  const store = useLiveStore();
  return useSyncExternalStore(store.watch, store.state);
}

const REFRESH_MS = 1_000;
const EVERYTHING: QueryKey = [];

/** Fetches again what the feed does not carry, when it says that something of it has changed. */
export function useRefreshOn(
  key: QueryKey,
  concerns: (event: LiveEvent) => boolean,
  everyMs = REFRESH_MS,
): void {
  const store = useLiveStore();
  const client = useQueryClient();
  const latest = useRef({ key, concerns });
  latest.current = { key, concerns };
  useEffect(() => {
    const refresh = new Refresh(() => refetch(client, latest.current.key), everyMs);
    // Nobody looks at a tab behind others: it fetches when it is looked at.
    let isOwed = false;
    const ask = (): void => {
      isOwed = document.hidden;
      if (!isOwed) refresh.ask();
    };
    const onSight = (): void => {
      if (isOwed) ask();
    };
    const stop = store.listen((event) => {
      // What was missed while nobody listened may be anything.
      const isAnew = event.kind === "connection" && event.connection.state === "live";
      if (isAnew || event.kind === "reset" || latest.current.concerns(event)) ask();
    });
    document.addEventListener("visibilitychange", onSight);
    return () => {
      stop();
      refresh.cancel();
      document.removeEventListener("visibilitychange", onSight);
    };
  }, [store, client, everyMs]);
}

/** What somebody did elsewhere may be seen on any page: all that is shown is fetched again. */
export function useFollowActs(): void {
  useRefreshOn(EVERYTHING, (event) => event.kind === "cluster" && event.about === "act");
}

/** The time in seconds, again every second. */
export function useNow(): number {
  return useSyncExternalStore(everySecond, () => Math.floor(Date.now() / 1000));
}

function everySecond(tick: () => void): () => void {
  const timer = setInterval(tick, 1_000);
  return () => clearInterval(timer);
}
