import { Link } from "wouter";
import type { Queue } from "../../api/types.ts";
import { formatCount, formatCut, formatRate, formatSeconds } from "../../format.ts";
import { useLive, useNow } from "../../live/hooks.ts";
import { rateOf } from "../../live/live-state.ts";
import { useSession } from "../../session/session.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { StaleNote } from "../../ui/stale-note.tsx";
import { State } from "../../ui/state.tsx";
import { EditLimits } from "./edit-limits.tsx";
import { PauseQueue } from "./pause-queue.tsx";
import { depthOf, describeDepths, describeLimits } from "./queue-text.ts";
import { useQueues } from "./use-queues.ts";

export function QueuesPage() {
  const { may, me } = useSession();
  const query = useQueues();
  const isOperator = may("cluster.read");
  const whose = isOperator
    ? `Counts are of all tenants, rates of tenant ${me.tenant}`
    : `Rates are of tenant ${me.tenant}`;
  return (
    <Page title="Queues">
      {isOperator ? <StaleNote /> : null}
      <Panel title="All queues" flush aside={<p className="text-xs text-muted">{whose}</p>}>
        <Loaded query={query}>
          {(queues) =>
            queues.length === 0 ? (
              <Empty>There is no queue yet: the first task of one makes it.</Empty>
            ) : (
              <Scroller label="Queues">
                <QueueTable queues={queues} isOperator={isOperator} />
              </Scroller>
            )
          }
        </Loaded>
      </Panel>
    </Page>
  );
}

function QueueTable({ queues, isOperator }: { queues: readonly Queue[]; isOperator: boolean }) {
  const { may } = useSession();
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Queue</th>
          <th scope="col">State</th>
          {isOperator ? <CountHeads /> : null}
          <th scope="col" className="num">
            Ended per second
          </th>
          <th scope="col">Limits</th>
          {may("queue.change") ? <th scope="col">Act</th> : null}
        </tr>
      </thead>
      <tbody>
        {queues.map((queue) => (
          <QueueRow key={queue.name} queue={queue} isOperator={isOperator} />
        ))}
      </tbody>
    </table>
  );
}

function CountHeads() {
  return (
    <>
      <th scope="col" className="num">
        Live
      </th>
      <th scope="col">By priority</th>
      <th scope="col" className="num">
        Running
      </th>
      <th scope="col" className="num">
        Oldest waits
      </th>
      <th scope="col" className="num">
        Dead
      </th>
    </>
  );
}

function QueueRow({ queue, isOperator }: { queue: Queue; isOperator: boolean }) {
  const { may } = useSession();
  const live = useLive();
  const now = useNow();
  const { name, isPaused, pauseReason } = queue;
  return (
    <tr>
      <td>
        <Link href={`/tasks?queue=${encodeURIComponent(name)}`} className="font-medium underline">
          {name}
        </Link>
      </td>
      <td>
        {isPaused ? <State name="paused" /> : "open"}
        {pauseReason === undefined ? null : <p className="text-xs text-muted">{pauseReason}</p>}
      </td>
      {isOperator ? <Counts queue={queue} /> : null}
      <td className="num">{formatRate(rateOf(live, name, now))}</td>
      <td>{describeLimits(queue)}</td>
      {may("queue.change") ? (
        <td>
          <div className="flex gap-2">
            <PauseQueue queue={queue} />
            <EditLimits queue={queue} />
          </div>
        </td>
      ) : null}
    </tr>
  );
}

function Counts({ queue }: { queue: Queue }) {
  const { name, running = 0, dead = 0, isDeadCut, oldestPendingSeconds } = queue;
  return (
    <>
      <td className="num">{formatCount(depthOf(queue))}</td>
      <td className="text-muted">{describeDepths(queue) || "–"}</td>
      <td className="num">{formatCount(running)}</td>
      <td className="num">
        {oldestPendingSeconds === undefined ? "–" : formatSeconds(oldestPendingSeconds)}
      </td>
      <td className="num">
        {dead === 0 ? (
          "0"
        ) : (
          <Link
            href={`/dead-letters?queue=${encodeURIComponent(name)}`}
            className="text-bad underline"
          >
            {formatCut(dead, isDeadCut)}
          </Link>
        )}
      </td>
    </>
  );
}
