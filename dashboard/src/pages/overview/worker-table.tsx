import type { Worker } from "../../api/types.ts";
import { formatCount, formatSeconds, plural, shortId } from "../../format.ts";
import { useNow } from "../../live/hooks.ts";
import type { LiveState } from "../../live/live-state.ts";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Badge, State } from "../../ui/state.tsx";
import { describeLoad } from "./load-text.ts";

/** Those of the last day are told of; only those that matter now are shown. */
export function WorkerTable({ live: { status, statusAtMs } }: { live: LiveState }) {
  const now = useNow();
  if (status === undefined) return null;
  const { workers, leader, latestPosition } = status;
  const shown = workers.filter((one) => one.status !== "stopped");
  const rest = workers.length - shown.length;
  const sinceSeconds = Math.max(0, now - Math.floor(statusAtMs / 1000));
  const led =
    leader.workerId === undefined
      ? "Nobody leads"
      : `${shortId(leader.workerId)} leads, term ${formatCount(leader.term)}`;
  return (
    <Panel
      title="Workers"
      flush
      aside={
        <p className="text-xs text-muted">
          {led} · log at position {formatCount(latestPosition)}
        </p>
      }
    >
      {shown.length === 0 ? (
        <Empty>No worker is running.</Empty>
      ) : (
        <Scroller label="Workers">
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Worker</th>
                <th scope="col">Status</th>
                <th scope="col">Host</th>
                <th scope="col">Version</th>
                <th scope="col" className="num">
                  Heartbeat
                </th>
                <th scope="col">Load</th>
                <th scope="col">Consumers</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((worker) => (
                <WorkerRow key={worker.id} worker={worker} sinceSeconds={sinceSeconds} />
              ))}
            </tbody>
          </table>
        </Scroller>
      )}
      {rest > 0 ? (
        <p className="px-4 py-2 text-xs text-muted">
          and {plural(rest, "worker")} that stopped within a day
        </p>
      ) : null}
    </Panel>
  );
}

function WorkerRow({ worker, sinceSeconds }: { worker: Worker; sinceSeconds: number }) {
  const { id, status, host, pid, version, isLeader, assigned, load } = worker;
  return (
    <tr>
      <td>
        <code title={id}>{shortId(id)}</code> {isLeader ? <Badge tone="busy">leader</Badge> : null}
      </td>
      <td>
        <State name={status} />
      </td>
      <td className="whitespace-nowrap">
        {host ?? "–"}
        {pid === undefined ? "" : `, pid ${pid}`}
      </td>
      <td>{version ?? "–"}</td>
      <td className="num">{formatSeconds(worker.heartbeatAgeSeconds + sinceSeconds)} ago</td>
      <td className="whitespace-nowrap">{describeLoad(load)}</td>
      <td>{assigned.length === 0 ? "–" : assigned.join(", ")}</td>
    </tr>
  );
}
