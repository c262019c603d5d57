import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Ring } from "../../api/types.ts";
import { useLive, useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { StaleNote } from "../../ui/stale-note.tsx";
import { HeartbeatLines } from "./heartbeat-lines.tsx";
import { LoadPanel } from "./load-panel.tsx";
import { MoveTable } from "./move-table.tsx";
import { OwnerTable } from "./owner-table.tsx";
import { RingCircle } from "./ring-circle.tsx";
import { type Asked, NEWCOMER, nameOf, RingControls } from "./ring-controls.tsx";
import {
  BUCKETS,
  bucketOfKey,
  colorsOf,
  movesOf,
  ownersOf,
  plainSpread,
  pointsOf,
  runsOf,
  type Supposed,
  VIRTUAL_NODES,
} from "./ring-math.ts";
import { RingWords } from "./ring-words.tsx";
import { useRingLoad } from "./use-ring-load.ts";

const KEY = ["ring"];

/** Who owns which keys, what a change would move, and whether workers are heard. */
export function RingPage() {
  const { api } = useSession();
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => api.get<{ rings: readonly Ring[] }>("/v1/ring", {}, signal),
  });
  useRefreshOn(
    KEY,
    (event) => event.kind === "cluster" && (event.about === "worker" || event.about === "ring"),
  );
  return (
    <Page title="Ring">
      <StaleNote />
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
      <Heartbeats />
    </Page>
  );
}

/** They follow every event, and what is above them does not. */
const Heartbeats = () => <HeartbeatLines live={useLive()} />;

const NOTHING: Asked = { ring: "", key: "", supposed: "", virtualNodes: VIRTUAL_NODES };

function Rings({ rings }: { rings: readonly Ring[] }) {
  const [asked, setAsked] = useState(NOTHING);
  const ring = rings.find((one) => nameOf(one) === asked.ring) ?? rings[0];
  const load = useRingLoad(ring);
  const { key, supposed, virtualNodes } = asked;
  const drawn = usePicture(ring, supposed, virtualNodes);
  if (ring === undefined || drawn === undefined) return null;
  const { owners, runs, colors, points, spread, change, moves } = drawn;
  const bucket = key === "" ? undefined : bucketOfKey(key);
  return (
    <>
      <RingControls
        rings={rings}
        ring={ring}
        asked={asked}
        onAsk={(part) => setAsked({ ...asked, ...part })}
      />
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(18rem,34rem)_1fr]">
        <Panel title={`Buckets of ${nameOf(ring)}`}>
          <RingCircle runs={runs} colors={colors} points={points} moves={moves} bucket={bucket} />
          <RingWords
            keyText={key}
            bucket={bucket}
            owners={owners}
            spread={spread}
            virtualNodes={virtualNodes}
          />
        </Panel>
        <div className="flex min-w-0 flex-col gap-4">
          {change === undefined ? null : (
            <MoveTable moves={moves} buckets={owners.size} colors={colors} load={load} />
          )}
          <OwnerTable ring={ring} colors={colors} load={load} />
        </div>
      </div>
      <LoadPanel load={load} owners={owners} colors={colors} />
    </>
  );
}

/** Thousands of hashes and a sort: only when the ring or what is asked of it is another. */
function usePicture(ring: Ring | undefined, supposed: string, virtualNodes: number) {
  return useMemo(
    () => (ring === undefined ? undefined : pictureOf(ring, supposed, virtualNodes)),
    [ring, supposed, virtualNodes],
  );
}

function pictureOf(ring: Ring, supposed: string, virtualNodes: number) {
  const owners = ownersOf(ring);
  const workers = ring.owners.map(({ worker }) => worker);
  const change = changeOf(supposed, workers);
  const coming = change !== undefined && "join" in change ? [NEWCOMER] : [];
  const leaving = change !== undefined && "leave" in change ? change.leave : undefined;
  const points = pointsOf(
    [...workers, ...coming].filter((worker) => worker !== leaving),
    virtualNodes,
  );
  return {
    owners,
    runs: runsOf(owners),
    colors: colorsOf([...workers, ...coming]),
    points,
    spread: plainSpread(points, BUCKETS),
    change,
    moves: change === undefined ? [] : movesOf(owners, change, virtualNodes),
  };
}

function changeOf(supposed: string, workers: readonly string[]): Supposed | undefined {
  if (supposed === "join") return { join: NEWCOMER };
  return workers.includes(supposed) ? { leave: supposed } : undefined;
}
