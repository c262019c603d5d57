import type { QueryClient, QueryKey } from "@tanstack/react-query";

/**
 * Fetches again what is shown. A fetch that is under way is waited for and not broken off: the next
 * change comes before a slow one has ended. It may have begun before the change, so it is fetched
 * once more.
 */
export async function refetch(client: QueryClient, queryKey: QueryKey): Promise<void> {
  const again = (): Promise<void> =>
    client.invalidateQueries({ queryKey }, { cancelRefetch: false });
  const isUnderWay = client.isFetching({ queryKey }) > 0;
  await again();
  if (isUnderWay) await again();
}
