import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearch } from "wouter";
import { part } from "../../api/http.ts";
import { isCut, nextUpTo } from "../../api/pages.ts";
import type { Firing, Schedule } from "../../api/types.ts";
import { formatCount } from "../../format.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { State } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { type ScheduleAct, ScheduleAsk } from "./schedule-ask.tsx";

const PAGE_ROWS = 200;
const PAGES_MAX = 5;
const FIRINGS = 20;

interface SchedulePage {
  readonly schedules: readonly Schedule[];
  readonly cursor?: string;
}

export function SchedulesPage() {
  const { api } = useSession();
  const chosen = new URLSearchParams(useSearch()).get("name");
  const queryKey = ["schedules"];
  const query = useInfiniteQuery({
    queryKey,
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) =>
      api.get<SchedulePage>("/v1/schedules", { cursor: pageParam, limit: PAGE_ROWS }, signal),
    getNextPageParam: nextUpTo(PAGES_MAX),
  });
  const { error, refetch } = query;
  const data = query.data?.pages.flatMap((page) => page.schedules);
  // A schedule that fires enqueues a task of its queue, and the feed tells of that.
  useRefreshOn(queryKey, (event) => {
    if (event.kind !== "summary") return false;
    const queues = new Set(data?.map(({ queue }) => queue));
    return event.summary.counts.some(({ queue }) => queue === null || queues.has(queue));
  });
  return (
    <Page title="Schedules">
      <Panel title="By name" flush>
        <Loaded query={{ data, error, refetch }}>
          {(schedules) =>
            schedules.length === 0 ? (
              <Empty>There is no schedule.</Empty>
            ) : (
              <Scroller label="Schedules">
                <ScheduleTable schedules={schedules} chosen={chosen} />
              </Scroller>
            )
          }
        </Loaded>
        {query.hasNextPage ? (
          <p className="px-4 py-2 text-right">
            <Button
              kind="quiet"
              disabled={query.isFetchingNextPage}
              onClick={() => void query.fetchNextPage()}
            >
              More of them
            </Button>
          </p>
        ) : null}
        {isCut(query.data?.pages, PAGES_MAX) ? (
          <p className="px-4 py-2 text-xs text-muted">
            The list ends after {formatCount(PAGES_MAX * PAGE_ROWS)}. The HTTP API and “tidemill
            schedule list” have the others.
          </p>
        ) : null}
      </Panel>
      {chosen === null ? null : <Firings key={chosen} name={chosen} />}
    </Page>
  );
}

interface ScheduleTableProps {
  readonly schedules: readonly Schedule[];
  readonly chosen: string | null;
}

function ScheduleTable({ schedules, chosen }: ScheduleTableProps) {
  const { may } = useSession();
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Schedule</th>
          <th scope="col">State</th>
          <th scope="col">When</th>
          <th scope="col">Queue</th>
          <th scope="col">Next</th>
          <th scope="col">Last</th>
          <th scope="col" className="num">
            Missed
          </th>
          {may("schedule.change") ? <th scope="col">Act</th> : null}
        </tr>
      </thead>
      <tbody>
        {schedules.map((schedule) => (
          <ScheduleRow
            key={schedule.name}
            schedule={schedule}
            isChosen={schedule.name === chosen}
          />
        ))}
      </tbody>
    </table>
  );
}

function ScheduleRow({ schedule, isChosen }: { schedule: Schedule; isChosen: boolean }) {
  const { may } = useSession();
  const { name, cron, timeZone, queue, nextAt, lastAt, lastTaskId, missed } = schedule;
  const { pausedAt, lastError } = schedule;
  return (
    <tr className={isChosen ? "bg-sunken" : ""}>
      <td>
        <Link
          href={`/schedules?name=${encodeURIComponent(name)}`}
          className="font-medium underline"
        >
          {name}
        </Link>
        {lastError === undefined ? null : <p className="text-xs text-bad">{lastError}</p>}
      </td>
      <td>{pausedAt === undefined ? "on" : <State name="paused" />}</td>
      <td className="whitespace-nowrap">
        <code>{cron}</code> <span className="text-muted">{timeZone}</span>
      </td>
      <td>{queue}</td>
      <td>{nextAt === undefined || pausedAt !== undefined ? "–" : <Ago at={nextAt} />}</td>
      <td>
        {lastAt === undefined ? "never" : <Ago at={lastAt} />}{" "}
        {lastTaskId === undefined ? null : (
          <Link href={`/tasks/${lastTaskId}`} className="font-mono text-accent underline">
            {lastTaskId}
          </Link>
        )}
      </td>
      <td className="num">{formatCount(missed)}</td>
      {may("schedule.change") ? (
        <td>
          <ScheduleActs schedule={schedule} />
        </td>
      ) : null}
    </tr>
  );
}

function ScheduleActs({ schedule }: { schedule: Schedule }) {
  const [asked, setAsked] = useState<ScheduleAct>();
  const { name, pausedAt } = schedule;
  const stop: ScheduleAct = pausedAt === undefined ? "pause" : "resume";
  const verb = stop === "pause" ? "Pause" : "Resume";
  return (
    <div className="flex gap-2">
      <Button aria-label={`Run now: ${name}`} onClick={() => setAsked("run")}>
        Run now
      </Button>
      <Button aria-label={`${verb}: ${name}`} onClick={() => setAsked(stop)}>
        {verb}
      </Button>
      {asked === undefined ? null : (
        <ScheduleAsk schedule={schedule} act={asked} onClose={() => setAsked(undefined)} />
      )}
    </div>
  );
}

/** What it enqueued last. */
function Firings({ name }: { name: string }) {
  const { api } = useSession();
  const queryKey = ["firings", name];
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) =>
      api.get<{ firings: readonly Firing[] }>(
        `/v1/schedules/${part(name)}/firings`,
        { limit: FIRINGS },
        signal,
      ),
  });
  useRefreshOn(queryKey, ({ kind }) => kind === "summary");
  return (
    <Panel title={`Last firings of ${name}`} flush>
      <Loaded query={query}>
        {({ firings }) =>
          firings.length === 0 ? (
            <Empty>It never fired.</Empty>
          ) : (
            <ul className="grid gap-x-6 gap-y-1 px-4 pb-4 sm:grid-cols-2 xl:grid-cols-4">
              {firings.map(({ taskId, tick, kind }) => (
                <li key={`${tick}-${taskId}`}>
                  <Ago at={tick} /> {kind === "run-now" ? "(by hand) " : ""}
                  <Link href={`/tasks/${taskId}`} className="font-mono text-accent underline">
                    {taskId}
                  </Link>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Panel>
  );
}
