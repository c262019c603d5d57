import type { DeadGroup } from "../../api/types.ts";
import type { DeadFilter } from "./dead-filter.ts";

/** Those that were selected, or all that a filter lets through. */
export type Which = { readonly ids: readonly string[] } | { readonly filter: DeadFilter };

export const keyOf = ({ queue, cause, reason }: DeadGroup): string =>
  [queue, cause, reason].join("\n");

/**
 * What an act would be done to. It is all of them only while nothing was selected: groups that were
 * selected and are gone leave nothing to act on, else a refresh could make a purge of everything
 * out of the purge of one error.
 */
export function whichOf(
  groups: readonly DeadGroup[],
  selected: ReadonlySet<string>,
  filter: DeadFilter,
): Which | undefined {
  if (selected.size === 0) return { filter };
  const ids = groups.filter((group) => selected.has(keyOf(group))).flatMap((group) => group.ids);
  return ids.length === 0 ? undefined : { ids };
}
