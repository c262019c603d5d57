import type { LiveEvent } from "./events.ts";
import type { LiveState } from "./live-state.ts";

/** From a tab to whoever reads the feed. */
export type ToReader =
  | { readonly type: "hello"; readonly token: string }
  | { readonly type: "alive" }
  | { readonly type: "hurry" }
  | { readonly type: "bye" };

/** And back. */
export type ToTab =
  | { readonly type: "state"; readonly state: LiveState }
  | { readonly type: "event"; readonly event: LiveEvent }
  /** It was taken for gone, and is to say hello again. */
  | { readonly type: "who" };

/** How often a tab says that it is there. One in the background may do so once a minute. */
export const ALIVE_MS = 20_000;
export const GONE_MS = 180_000;
