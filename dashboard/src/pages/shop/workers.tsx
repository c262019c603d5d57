import { useState } from "react";
import { part } from "../../api/http.ts";
import type { Worker } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { formatSeconds, shortId } from "../../format.ts";
import { useLive, useNow } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { useNotify } from "../../ui/notices.tsx";
import { Panel, Scroller } from "../../ui/panel.tsx";
import { Badge, type Tone } from "../../ui/state.tsx";
import type { Shop, ShopWorker, WorkerState } from "./use-shop.ts";

const TONES: Readonly<Record<WorkerState, Tone>> = {
  starting: "busy",
  running: "good",
  paused: "warn",
  stopping: "warn",
  stopped: "calm",
  killed: "bad",
  failed: "bad",
};

const DONE = {
  kill: "was killed",
  pause: "is paused",
  resume: "goes on",
  stop: "was asked to stop",
} as const;
type Act = keyof typeof DONE;

/** Real processes: what the buttons do to them is what an operating system does. */
export function Workers({ shop }: { shop: Shop }) {
  const { api } = useSession();
  const run = useRun();
  const { workers, workersMax, leaseSeconds, heartbeatSeconds } = shop;
  const alive = workers.filter(({ state }) => !/stopped|killed|failed/.test(state)).length;
  return (
    <Panel
      title="Worker processes"
      flush
      aside={
        <Button
          kind="primary"
          disabled={run.isBusy || alive >= workersMax}
          onClick={() => run.act(() => api.post("/v1/demo/workers"), "A worker starts")}
        >
          Add a worker
        </Button>
      }
    >
      <Scroller label="Worker processes">
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Process</th>
              <th scope="col">State</th>
              <th scope="col">Do</th>
              <th scope="col">The cluster thinks</th>
              <th scope="col">Consumers</th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => (
              <WorkerRow key={worker.name} worker={worker} />
            ))}
          </tbody>
        </table>
      </Scroller>
      <p className="px-4 py-2 text-xs text-muted">
        Who is silent for {heartbeatSeconds} s is taken for dead; a task whose lease of{" "}
        {leaseSeconds} s was not renewed goes to another.
      </p>
    </Panel>
  );
}

interface Run {
  readonly isBusy: boolean;
  readonly act: (call: () => Promise<unknown>, done: string) => void;
}

/** What the server refuses is said where everything is said. */
function useRun(): Run {
  const act = useAct();
  const notify = useNotify();
  const [isBusy, setBusy] = useState(false);
  return {
    isBusy,
    act(call, done) {
      setBusy(true);
      act(call, done)
        .catch((error: unknown) => notify(error instanceof Error ? error.message : String(error)))
        .finally(() => setBusy(false));
    },
  };
}

function WorkerRow({ worker }: { worker: ShopWorker }) {
  const { name, pid, workerId, state } = worker;
  const { status, statusAtMs } = useLive();
  const now = useNow();
  const known = status?.workers.find(({ id }) => id === workerId);
  const sinceSeconds = Math.max(0, now - Math.floor(statusAtMs / 1000));
  return (
    <tr>
      <td className="whitespace-nowrap">
        <span className="font-medium">{name}</span>
        {pid === undefined ? null : <p className="text-xs text-muted">pid {pid}</p>}
      </td>
      <td>
        <Badge tone={TONES[state]}>{state}</Badge>
      </td>
      <td>
        <Acts worker={worker} />
      </td>
      <td className="whitespace-nowrap">
        {workerId === undefined ? "–" : <code title={workerId}>{shortId(workerId)}</code>}{" "}
        {known === undefined ? null : opinionOf(known, sinceSeconds)}
      </td>
      <td>{known === undefined ? "–" : known.assigned.join(", ") || "–"}</td>
    </tr>
  );
}

function opinionOf({ status, heartbeatAgeSeconds, isLeader }: Worker, sinceSeconds: number) {
  if (status !== "active") return status;
  const heard = `heard ${formatSeconds(heartbeatAgeSeconds + sinceSeconds)} ago`;
  return isLeader ? `leads, ${heard}` : heard;
}

function Acts({ worker: { name, state } }: { worker: ShopWorker }) {
  const { api } = useSession();
  const run = useRun();
  const acts: readonly Act[] =
    state === "running"
      ? ["kill", "pause", "stop"]
      : state === "paused"
        ? ["kill", "resume", "stop"]
        : state === "starting"
          ? ["kill"]
          : [];
  if (acts.length === 0) return "–";
  return (
    <div className="flex gap-2">
      {acts.map((act) => (
        <Button
          key={act}
          kind={act === "kill" ? "danger" : "plain"}
          aria-label={`${TEXT[act]} ${name}`}
          disabled={run.isBusy}
          onClick={() =>
            run.act(() => api.post(`/v1/demo/workers/${part(name)}/${act}`), `${name} ${DONE[act]}`)
          }
        >
          {TEXT[act]}
        </Button>
      ))}
    </div>
  );
}

const TEXT: Readonly<Record<Act, string>> = {
  kill: "Kill",
  pause: "Pause",
  resume: "Resume",
  stop: "Stop",
};
