import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Ring } from "../../api/types.ts";
import { plural, shortId } from "../../format.ts";
import { useLive, useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Select, TextField } from "../../ui/field.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { HeartbeatLines } from "./heartbeat-lines.tsx";
import { RingCircle } from "./ring-circle.tsx";
import {
  bucketOfKey,
  colorsOf,
  describeRuns,
  movesOf,
  ownersOf,
  runsOf,
  type Supposed,
} from "./ring-math.ts";

const KEY = ["ring"];

/** Who owns which keys, what a change would move, and whether workers are heard. */
export function RingPage() {
  const { api } = useSession();
  const live = useLive();
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => api.get<{ rings: readonly Ring[] }>("/v1/ring", {}, signal),
  });
  useRefreshOn(KEY, (event) => event.kind === "cluster" && event.about !== "gap");
  return (
    <Page title="Ring">
      <Loaded query={query}>
        {({ rings }) =>
          rings.length === 0 ? (
            <Panel title="Key spaces" flush>
              <Empty>No queue has keyed tasks yet, so nobody owns anything.</Empty>
            </Panel>
          ) : (
            <Rings rings={rings} />
          )
        }
      </Loaded>
      <HeartbeatLines live={live} />
    </Page>
  );
}

const nameOf = ({ keySpace, tenant }: Ring): string => `${keySpace} of ${tenant}`;
const NEWCOMER = "a new worker";

function Rings({ rings }: { rings: readonly Ring[] }) {
  const [chosen, setChosen] = useState("");
  const [key, setKey] = useState("");
  const [supposed, setSupposed] = useState("");
  const ring = rings.find((one) => nameOf(one) === chosen) ?? rings[0];
  if (ring === undefined) return null;
  const owners = ownersOf(ring);
  const workers = ring.owners.map(({ worker }) => worker);
  const colors = colorsOf([...workers, ...(supposed === "join" ? [NEWCOMER] : [])]);
  const change = changeOf(supposed, workers);
  const moves = change === undefined ? [] : movesOf(owners, change);
  const bucket = key === "" ? undefined : bucketOfKey(key);
  return (
    <>
      <div className="grid gap-3 sm:grid-cols-3">
        <Select
          label="Key space"
          options={rings.map((one) => [nameOf(one), nameOf(one)])}
          value={nameOf(ring)}
          onChange={(event) => setChosen(event.target.value)}
        />
        <TextField
          label="Whose is this key?"
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        <Select
          label="What would move if"
          options={[
            ["", "nothing changes"],
            ["join", "a worker joins"],
            ...workers.map((worker) => [worker, `${shortId(worker)} leaves`] as const),
          ]}
          value={supposed}
          onChange={(event) => setSupposed(event.target.value)}
        />
      </div>
      <div className="grid gap-4 lg:grid-cols-[minmax(18rem,28rem)_1fr]">
        <Panel title={`Buckets of ${nameOf(ring)}`}>
          <RingCircle runs={runsOf(owners)} colors={colors} moves={moves} bucket={bucket} />
          <div aria-live="polite" className="mt-3 flex flex-col gap-1 text-center">
            <KeyAnswer bucket={bucket} keyText={key} owner={owners.get(bucket ?? -1)} />
            {change === undefined ? null : (
              <p>
                {plural(moves.length, "bucket")} of {owners.size} would move; nothing has changed.
              </p>
            )}
          </div>
        </Panel>
        <OwnerTable ring={ring} colors={colors} />
      </div>
    </>
  );
}

function changeOf(supposed: string, workers: readonly string[]): Supposed | undefined {
  if (supposed === "join") return { join: NEWCOMER };
  return workers.includes(supposed) ? { leave: supposed } : undefined;
}

interface KeyAnswerProps {
  readonly keyText: string;
  readonly bucket: number | undefined;
  readonly owner: string | undefined;
}

function KeyAnswer({ keyText, bucket, owner }: KeyAnswerProps) {
  if (bucket === undefined) return null;
  return (
    <p>
      Key “{keyText}” is in bucket {bucket}, which{" "}
      {owner === undefined ? "nobody owns" : <code title={owner}>{shortId(owner)}</code>}
      {owner === undefined ? "" : " owns"}.
    </p>
  );
}

function OwnerTable({ ring, colors }: { ring: Ring; colors: ReadonlyMap<string, string> }) {
  return (
    <Panel title={`Owners, for queues ${ring.queues.join(", ")}`} flush>
      <Scroller label="Owners">
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Worker</th>
              <th scope="col" className="num">
                Buckets
              </th>
              <th scope="col" className="num">
                Epoch
              </th>
              <th scope="col">Which</th>
            </tr>
          </thead>
          <tbody>
            {ring.owners.map(({ worker, buckets, epoch }) => (
              <tr key={worker}>
                <td className="whitespace-nowrap">
                  <svg width="10" height="10" aria-hidden="true" className="mr-2 inline">
                    <rect width="10" height="10" rx="2" fill={colors.get(worker)} />
                  </svg>
                  <code title={worker}>{shortId(worker)}</code>
                </td>
                <td className="num">{buckets.length}</td>
                <td className="num">{epoch}</td>
                <td className="min-w-64 text-xs text-muted">
                  {describeRuns(runsOf(new Map(buckets.map((one) => [one, worker]))))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroller>
    </Panel>
  );
}
