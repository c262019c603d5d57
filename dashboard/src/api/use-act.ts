import { useQueryClient } from "@tanstack/react-query";
import { useNotify } from "../ui/notices.tsx";

/** Does something, says that it was done, and fetches again whatever it may have changed. */
export function useAct(): (act: () => Promise<unknown>, done: string) => Promise<void> {
  const queries = useQueryClient();
  const notify = useNotify();
  return async (act, done) => {
    await act();
    notify(done);
    await queries.invalidateQueries();
  };
}
