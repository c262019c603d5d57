import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Failure, Task } from "../../api/types.ts";
import { localTimes } from "../../format.ts";
import { indentJson, rawMembers } from "../../json-text.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Page } from "../../ui/page.tsx";
import { Code, Facts, Panel } from "../../ui/panel.tsx";
import { Loaded, type LoadedQuery, presentOf } from "../../ui/query-state.tsx";
import { State } from "../../ui/state.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { isAbout, mayMove } from "./about-task.ts";
import { CausingEvent } from "./causing-event.tsx";
import { TaskActions } from "./task-actions.tsx";
import { Timeline } from "./timeline.tsx";

interface TaskStory {
  readonly task: Task;
  /** Its members as they were written. */
  readonly raw: ReadonlyMap<string, string>;
}

/** Each is asked for by itself: what one of them says is shown although another fails. */
interface StoryProps extends TaskStory {
  readonly failures: LoadedQuery<readonly Failure[]>;
  readonly why: LoadedQuery<string>;
}

/** To say why a task does not run takes several looks at its queue. */
const WHY_REFRESH_MS = 2_000;

export function TaskPage({ id }: { id: string }) {
  const { api } = useSession();
  const queryKey = ["task", id];
  const path = `/v1/tasks/${encodeURIComponent(id)}`;
  const query = useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<TaskStory> => {
      const text = await api.getText(path, signal);
      return { task: JSON.parse(text) as Task, raw: rawMembers(text) };
    },
  });
  const failures = useQuery({
    queryKey: [...queryKey, "failures"],
    queryFn: async ({ signal }) =>
      (await api.get<{ failures: readonly Failure[] }>(`${path}/failures`, {}, signal)).failures,
  });
  const why = useQuery({
    queryKey: [...queryKey, "why"],
    queryFn: async ({ signal }) => (await api.get<{ why: string }>(`${path}/why`, {}, signal)).why,
  });
  const story = presentOf(query);
  const { queue, state } = story?.task ?? {};
  const isOver = state === undefined || ENDED.test(state);
  useRefreshOn(queryKey, (event) => isAbout(event, id, queue));
  // Why it does not run changes with those before it.
  useRefreshOn(queryKey, (event) => !isOver && mayMove(event, queue), WHY_REFRESH_MS);
  return (
    <Page title={`Task ${id}`} actions={story === undefined ? null : <TaskActions {...story} />}>
      <Loaded query={query}>{(found) => <Story {...found} failures={failures} why={why} />}</Loaded>
    </Page>
  );
}

const ENDED = /^(completed|failed|dead|cancelled)$/;

function Story({ task, raw, failures, why }: StoryProps) {
  const written = (name: string): string | undefined => {
    const text = raw.get(name);
    return text === undefined ? undefined : indentJson(text);
  };
  return (
    <>
      <section aria-label="Why" className="rounded-lg border border-line bg-panel px-4 py-3">
        <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
          <State name={task.state} />
          <Loaded query={why}>
            {(text) => (
              <p>
                {ENDED.test(task.state) ? "" : "Why it is where it is: "}
                {localTimes(text)}
              </p>
            )}
          </Loaded>
        </div>
      </section>
      <div className="grid gap-4 lg:grid-cols-2">
        <div className="flex min-w-0 flex-col gap-4">
          <Panel title="Timeline">
            <Loaded query={failures}>{(found) => <Timeline task={task} failures={found} />}</Loaded>
          </Panel>
          <About task={task} />
          {task.causedBy === undefined ? null : <CausingEvent position={task.causedBy} />}
        </div>
        <div className="flex min-w-0 flex-col gap-4">
          <Panel
            title="Payload"
            aside={<span className="text-xs text-muted">{task.contentType}</span>}
          >
            <Code label="Payload">{task.payloadBase64 ?? written("payload") ?? ""}</Code>
          </Panel>
          <TextPanel title="Progress" text={written("progress")} />
          <TextPanel title="Result" text={written("result")} />
        </div>
      </div>
    </>
  );
}

function TextPanel({ title, text }: { title: string; text: string | undefined }) {
  if (text === undefined) return null;
  return (
    <Panel title={title}>
      <Code label={title}>{text}</Code>
    </Panel>
  );
}

function About({ task }: { task: Task }) {
  const { queue, partitionKey, traceParent, webhook, leaseUntil } = task;
  const named = encodeURIComponent(queue);
  return (
    <Panel title="Details">
      <Facts
        items={[
          [
            "Queue",
            <Link key="queue" href={`/tasks?queue=${named}`} className="underline">
              {queue}
            </Link>,
          ],
          ["Tenant", task.tenant],
          ...optional("Kind", task.kind),
          ["Priority", String(task.priority)],
          ["Attempt", `${task.attempt} of ${task.maxAttempts}`],
          ["Generation", String(task.generation)],
          ...(partitionKey === undefined
            ? []
            : ([
                [
                  "Key",
                  <Link
                    key="key"
                    href={`/tasks?queue=${named}&key=${encodeURIComponent(partitionKey)}`}
                    className="underline"
                  >
                    {partitionKey}
                  </Link>,
                ],
              ] as const)),
          ["Enqueued", <Instant key="created" at={task.createdAt} />],
          ["Not before", <Instant key="run" at={task.runAt} />],
          ...(leaseUntil === undefined || task.state !== "running"
            ? []
            : ([["Lease ends", <Ago key="lease" at={leaseUntil} />]] as const)),
          ...traceOf(traceParent),
          ...optional("Calls", task.targetUrl),
          ...optional("Webhook", webhook),
          ...optional("Cause", task.cause),
        ]}
      />
    </Panel>
  );
}

/** As tools for traces want it, from "00-<trace>-<span>-<flags>". */
function traceOf(traceParent: string | undefined): [string, ReactNode][] {
  if (traceParent === undefined) return [];
  const [, trace, span] = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-/.exec(traceParent) ?? [];
  if (trace === undefined) return [["Trace", traceParent]];
  return [
    ["Trace", <code key="trace">{trace}</code>],
    ["Enqueued in span", <code key="span">{span}</code>],
  ];
}

const optional = (name: string, value: string | undefined): [string, string][] =>
  value === undefined ? [] : [[name, value]];
