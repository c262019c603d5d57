import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Failure, Task } from "../../api/types.ts";
import { indentJson, rawMembers } from "../../json-text.ts";
import type { LiveEvent } from "../../live/events.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Page } from "../../ui/page.tsx";
import { Code, Facts, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { State } from "../../ui/state.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { TaskActions } from "./task-actions.tsx";
import { Timeline } from "./timeline.tsx";

interface TaskStory {
  readonly task: Task;
  /** Its members as they were written. */
  readonly raw: ReadonlyMap<string, string>;
  readonly failures: readonly Failure[];
  readonly why: string;
}

export function TaskPage({ id }: { id: string }) {
  const { api } = useSession();
  const queryKey = ["task", id];
  const query = useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<TaskStory> => {
      const path = `/v1/tasks/${encodeURIComponent(id)}`;
      const [text, { failures }, { why }] = await Promise.all([
        api.getText(path, signal),
        api.get<{ failures: readonly Failure[] }>(`${path}/failures`, {}, signal),
        api.get<{ why: string }>(`${path}/why`, {}, signal),
      ]);
      return { task: JSON.parse(text) as Task, raw: rawMembers(text), failures, why };
    },
  });
  const queue = query.data?.task.queue;
  useRefreshOn(queryKey, (event) => isAbout(event, id, queue));
  return (
    <Page
      title={`Task ${id}`}
      actions={query.data === undefined ? null : <TaskActions {...query.data} />}
    >
      <Loaded query={query}>{(story) => <Story {...story} />}</Loaded>
    </Page>
  );
}

/** Whether it tells of this task, or of too many of its queue to know. */
export function isAbout(event: LiveEvent, id: string, queue: string | undefined): boolean {
  if (event.kind !== "summary") return false;
  const { isComplete, changes, counts } = event.summary;
  if (isComplete) return changes.some((change) => change.id === id);
  return counts.some((count) => count.queue === queue || count.queue === null);
}

const ENDED = /^(completed|failed|dead|cancelled)$/;

function Story({ task, raw, failures, why }: TaskStory) {
  const written = (name: string): string | undefined => {
    const text = raw.get(name);
    return text === undefined ? undefined : indentJson(text);
  };
  return (
    <>
      <section aria-label="Why" className="rounded-lg border border-line bg-panel px-4 py-3">
        <p className="flex flex-wrap items-center gap-x-3 gap-y-1">
          <State name={task.state} />
          <span>
            {ENDED.test(task.state) ? "" : "Why it is where it is: "}
            {why}
          </span>
        </p>
      </section>
      <div className="grid gap-4 lg:grid-cols-2">
        <div className="flex min-w-0 flex-col gap-4">
          <Panel title="What became of it">
            <Timeline task={task} failures={failures} />
          </Panel>
          <About task={task} />
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
    <Panel title="About it">
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
          ...optional("Trace", traceParent),
          ...optional("Webhook", webhook),
          ...optional("Cause", task.cause),
        ]}
      />
    </Panel>
  );
}

const optional = (name: string, value: string | undefined): [string, string][] =>
  value === undefined ? [] : [[name, value]];
