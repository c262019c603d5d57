import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Comparison, Rebuild } from "../../api/types.ts";
import { formatCount, formatRate, formatSeconds } from "../../format.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Facts, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Badge } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { ComparisonTable } from "./comparison-table.tsx";
import { RebuildActions } from "./rebuild-actions.tsx";

interface Projection {
  readonly consumer: string;
  readonly tables: readonly string[];
  readonly rebuild?: Rebuild;
}

/** The tables of a projection, built anew beside the live ones. */
export function RebuildPanel({ name }: { name: string }) {
  const { api } = useSession();
  const [compared, setCompared] = useState<Comparison>();
  const queryKey = ["rebuild", name];
  const query = useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<Projection | null> => {
      const all = await api.get<{ projections: readonly Projection[] }>("/v1/rebuilds", {}, signal);
      return all.projections.find(({ consumer }) => consumer === name) ?? null;
    },
  });
  const rebuild = query.data?.rebuild;
  const isBuilding = rebuild?.state === "building";
  // How far it is comes with the state of the cluster, which is pushed.
  useRefreshOn(queryKey, (event) => event.kind === "status" && isBuilding);
  if (query.data === null) return null; // It declares no tables.
  return (
    <Panel
      title={`Rebuild of ${name}`}
      aside={
        query.data == null ? null : (
          <RebuildActions name={name} rebuild={rebuild} onCompared={setCompared} />
        )
      }
    >
      <Loaded query={query}>
        {(found) =>
          found?.rebuild === undefined ? (
            <NoRebuild tables={found?.tables ?? []} />
          ) : (
            <RebuildFacts rebuild={found.rebuild} />
          )
        }
      </Loaded>
      {compared === undefined || !isBuilding ? null : <ComparisonTable comparison={compared} />}
    </Panel>
  );
}

function NoRebuild({ tables }: { tables: readonly string[] }) {
  return (
    <p className="text-muted">
      None. It declares {tables.join(", ")}. A rebuild handles the whole log again into copies of
      these tables, while the live ones go on. Then you compare, swap, and roll back if it was a
      mistake.
    </p>
  );
}

const STATES = {
  building: { text: "building", tone: "busy" },
  swapped: { text: "swapped in", tone: "good" },
  rolled_back: { text: "rolled back", tone: "warn" },
} as const;

function RebuildFacts({ rebuild }: { rebuild: Rebuild }) {
  const { state, reason, startedAt, changedAt, tables, schema, progress, partitions } = rebuild;
  const { text, tone } = STATES[state];
  const kept = state === "swapped" ? "Tables from before" : "Rebuilt tables";
  return (
    <div className="flex flex-col gap-4">
      {progress === undefined ? null : <Progress progress={progress} />}
      <Facts
        items={[
          [
            "State",
            <span key="state">
              <Badge tone={tone}>{text}</Badge> since <Ago at={changedAt} />
            </span>,
          ],
          ...(reason === undefined ? [] : [["Reason", reason] as const]),
          ["Started", <Ago key="started" at={startedAt} />],
          ["Live tables", tables.join(", ")],
          [kept, `in schema ${schema}`],
          ...(partitions.length > 1 ? [["Partitions", String(partitions.length)] as const] : []),
        ]}
      />
    </div>
  );
}

function Progress({ progress }: { progress: NonNullable<Rebuild["progress"]> }) {
  const { position, head, share, positionsPerSecond, etaSeconds, stopped, error } = progress;
  const percent = Math.floor(share * 1000) / 10;
  const rate =
    positionsPerSecond === undefined ? "" : `, ${formatRate(positionsPerSecond)} per second`;
  return (
    <div>
      <progress className="bar" value={share} max={1} aria-label={`${percent} % rebuilt`} />
      <p className="mt-1 text-sm">
        {percent} %: position {formatCount(position)} of {formatCount(head)}
        {rate}
        {share >= 1 ? ", at the head of the log" : ""}
        {etaSeconds === undefined || share >= 1 ? "" : `, ${formatSeconds(etaSeconds)} left`}
      </p>
      {stopped === undefined ? null : (
        <p className="mt-1 text-bad">
          It is {stopped}
          {error === undefined ? "." : `: ${error}`}
        </p>
      )}
    </div>
  );
}
