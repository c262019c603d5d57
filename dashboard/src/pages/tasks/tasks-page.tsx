import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { type FormEvent, useMemo, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { isCut, nextUpTo } from "../../api/pages.ts";
import { TASK_STATES, type TaskPage, type TaskState } from "../../api/types.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { SearchField, Select, TextField } from "../../ui/field.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { useQueues } from "../queues/use-queues.ts";
import { concernsList, readFilter, type TaskFilter, writeFilter } from "./filter.ts";
import { TaskList } from "./task-list.tsx";

const PAGE_ROWS = 100;
const PAGES_MAX = 50;

export function TasksPage() {
  const filter = readFilter(useSearch());
  const query = useTasks(filter);
  const tasks = useMemo(() => query.data?.pages.flatMap((page) => page.tasks), [query.data]);
  const { error, refetch, isPlaceholderData } = query;
  return (
    <Page title="Tasks">
      <Filters filter={filter} />
      <Panel title="Newest first" flush className={isPlaceholderData ? "opacity-60" : ""}>
        <Loaded query={{ data: tasks, error, refetch }}>
          {(found) =>
            found.length === 0 ? (
              <NoneFound query={query} />
            ) : (
              <TaskList
                tasks={found}
                hasMore={query.hasNextPage}
                isCut={isCut(query.data?.pages, PAGES_MAX)}
                isThin={(query.data?.pages.at(-1)?.tasks.length ?? 0) < PAGE_ROWS}
                isLoading={query.isFetchingNextPage || isPlaceholderData}
                onMore={() => void query.fetchNextPage()}
              />
            )
          }
        </Loaded>
      </Panel>
    </Page>
  );
}

/** A page that found nothing has looked at the newest of millions only. */
function NoneFound({ query }: { query: ReturnType<typeof useTasks> }) {
  const { data, hasNextPage, isFetchingNextPage, fetchNextPage, isPlaceholderData } = query;
  if (isPlaceholderData) return <Empty>Loading…</Empty>;
  if (isCut(data?.pages, PAGES_MAX)) {
    return <Empty>There is no such task among the newest, and the list ends here.</Empty>;
  }
  if (!hasNextPage) return <Empty>There is no such task.</Empty>;
  return (
    <div className="flex flex-col items-center gap-2 px-4 py-6 text-muted">
      <p>There is no such task among the newest.</p>
      <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
        Look further back
      </Button>
    </div>
  );
}

/** Pages of tasks, fetched again when the feed tells of one that is or may be among them. */
function useTasks(filter: TaskFilter) {
  const { api } = useSession();
  const queryKey = ["tasks", filter];
  const query = useInfiniteQuery({
    queryKey,
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) =>
      api.get<TaskPage>("/v1/tasks", { ...filter, cursor: pageParam, limit: PAGE_ROWS }, signal),
    getNextPageParam: nextUpTo(PAGES_MAX),
    placeholderData: keepPreviousData,
  });
  const shown = useMemo(
    () => new Set(query.data?.pages.flatMap((page) => page.tasks.map(({ id }) => id))),
    [query.data],
  );
  useRefreshOn(
    queryKey,
    (event) => event.kind === "summary" && concernsList(filter, event.summary, shown),
  );
  return query;
}

const STATES = [["", "any"], ...TASK_STATES.map((state) => [state, state] as const)] as const;

function useQueueOptions(chosen: string): readonly (readonly [string, string])[] {
  const { data = [] } = useQueues();
  const names = new Set([...(chosen === "" ? [] : [chosen]), ...data.map(({ name }) => name)]);
  return [["", "any"], ...[...names].sort().map((name) => [name, name] as const)];
}

function Filters({ filter }: { filter: TaskFilter }) {
  const [, go] = useLocation();
  const [id, setId] = useState("");
  const apply = (change: Partial<TaskFilter>): void =>
    go(`/tasks${writeFilter({ ...filter, ...change })}`, { replace: true });
  const open = (event: FormEvent): void => {
    event.preventDefault();
    if (/^[1-9]\d{0,17}$/.test(id.trim())) go(`/tasks/${id.trim()}`);
  };
  return (
    <div className="grid gap-3 sm:grid-cols-2 lg:grid-cols-4">
      <Select
        label="Queue"
        options={useQueueOptions(filter.queue)}
        value={filter.queue}
        onChange={(event) => apply({ queue: event.target.value })}
      />
      <Select
        label="State"
        options={STATES}
        value={filter.state}
        onChange={(event) => apply({ state: event.target.value as TaskState | "" })}
      />
      <SearchField
        label="Key"
        value={filter.partitionKey}
        onValue={(partitionKey) => apply({ partitionKey })}
      />
      <form onSubmit={open} className="flex items-end gap-2">
        <TextField
          label="Task id"
          className="grow"
          inputMode="numeric"
          value={id}
          pattern="[1-9][0-9]{0,17}"
          onChange={(event) => setId(event.target.value)}
        />
        <Button type="submit">Open</Button>
      </form>
    </div>
  );
}
