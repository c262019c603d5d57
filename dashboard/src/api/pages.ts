/** One of several, which says where the next begins. */
interface Paged {
  readonly cursor?: string;
}

/**
 * Where the page behind the last one begins, up to so many pages: all of them are fetched again
 * when something changes. Those that are shown stay, so that the newest are never the ones to go.
 */
export const nextUpTo =
  (pagesMax: number) =>
  (last: Paged, all: readonly Paged[]): string | undefined =>
    all.length < pagesMax ? last.cursor : undefined;

/** Whether there is more than may be shown. */
export const isCut = (all: readonly Paged[] | undefined, pagesMax: number): boolean =>
  all !== undefined && all.length >= pagesMax && all.at(-1)?.cursor !== undefined;
