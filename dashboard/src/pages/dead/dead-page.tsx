import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useLocation, useSearch } from "wouter";
import type { DeadGroup } from "../../api/types.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { SearchField, Select } from "../../ui/field.tsx";
import { Page } from "../../ui/page.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { useQueues } from "../queues/use-queues.ts";
import { CAUSES, type DeadFilter, readDeadFilter, writeDeadFilter } from "./dead-filter.ts";
import { EventDesk } from "./event-desk.tsx";
import { TaskDesk } from "./task-desk.tsx";

export interface Groups {
  readonly groups: readonly DeadGroup[];
  readonly isCut: boolean;
}

/** With what they were looked for: while others are fetched, acts are about what is shown. */
interface Found extends Groups {
  readonly filter: DeadFilter;
}

/** One desk for what nobody could handle: tasks that died, and events that consumers set aside. */
export function DeadPage() {
  const filter = readDeadFilter(useSearch());
  const { api, may } = useSession();
  const queryKey = ["dead", filter];
  const query = useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<Found> => ({
      ...(await api.get<Groups>("/v1/dead-letters/groups", { ...filter }, signal)),
      filter,
    }),
    placeholderData: keepPreviousData,
  });
  useRefreshOn(queryKey, (event) => {
    if (event.kind !== "summary") return false;
    // Those that were redriven are pending again, and told as such.
    return event.summary.counts.some(({ state }) => /^(dead|purged|pending)$/.test(state));
  });
  return (
    <Page title="Dead letters">
      <Filters filter={filter} />
      <Loaded query={query}>
        {(found) => <TaskDesk {...found} isOld={query.isPlaceholderData} />}
      </Loaded>
      {may("cluster.read") ? <EventDesk /> : null}
    </Page>
  );
}

function Filters({ filter }: { filter: DeadFilter }) {
  const [, go] = useLocation();
  const { data: queues = [] } = useQueues();
  const apply = (change: DeadFilter): void =>
    go(`/dead-letters${writeDeadFilter({ ...filter, ...change })}`, { replace: true });
  const { queue = "", cause = "", kind = "", partitionKey = "" } = filter;
  const names = new Set([...(queue === "" ? [] : [queue]), ...queues.map(({ name }) => name)]);
  return (
    <div className="grid gap-3 sm:grid-cols-2 lg:grid-cols-4">
      <Select
        label="Queue"
        options={[["", "any"], ...[...names].sort().map((name) => [name, name] as const)]}
        value={queue}
        onChange={(event) => apply({ queue: event.target.value })}
      />
      <Select
        label="Cause"
        options={[["", "any"], ...CAUSES]}
        value={cause}
        onChange={(event) => apply({ cause: event.target.value })}
      />
      <SearchField label="Kind" value={kind} onValue={(value) => apply({ kind: value })} />
      <SearchField
        label="Key"
        value={partitionKey}
        onValue={(value) => apply({ partitionKey: value })}
      />
    </div>
  );
}
