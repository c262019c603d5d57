import { useInfiniteQuery } from "@tanstack/react-query";
import { type FormEvent, useMemo, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { TASK_STATES, type TaskPage, type TaskState } from "../../api/types.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Select, TextField } from "../../ui/field.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { useQueues } from "../queues/use-queues.ts";
import { concerns, readFilter, type TaskFilter, writeFilter } from "./filter.ts";
import { TaskList } from "./task-list.tsx";

const PAGE_ROWS = 100;

export function TasksPage() {
  const filter = readFilter(useSearch());
  const query = useTasks(filter);
  const tasks = useMemo(() => query.data?.pages.flatMap((page) => page.tasks), [query.data]);
  const { error, refetch } = query;
  return (
    <Page title="Tasks">
      <Filters filter={filter} />
      <Panel title="Newest first" flush>
        <Loaded query={{ data: tasks, error, refetch }}>
          {(found) =>
            found.length === 0 ? (
              <Empty>There is no such task.</Empty>
            ) : (
              <TaskList
                tasks={found}
                hasMore={query.hasNextPage}
                isLoading={query.isFetchingNextPage}
                onMore={() => void query.fetchNextPage()}
              />
            )
          }
        </Loaded>
      </Panel>
    </Page>
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
    getNextPageParam: ({ cursor }) => cursor,
    maxPages: 50,
  });
  const shown = useMemo(
    () => new Set(query.data?.pages.flatMap((page) => page.tasks.map(({ id }) => id))),
    [query.data],
  );
  useRefreshOn(queryKey, (event) => {
    if (event.kind !== "summary") return false;
    const { isComplete, changes, counts } = event.summary;
    if (isComplete) return changes.some((change) => concerns(filter, change, shown));
    return counts.some(({ queue }) => filter.queue === "" || queue === filter.queue);
  });
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
      <TextField
        label="Key"
        value={filter.partitionKey}
        onChange={(event) => apply({ partitionKey: event.target.value })}
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
