import type { Ring, RingLoad } from "../../api/types.ts";
import { formatCount, shortId } from "../../format.ts";
import { Panel, Scroller } from "../../ui/panel.tsx";
import { atLeast, sumOf } from "./load-math.ts";
import { describeRuns, runsOf } from "./ring-math.ts";

export interface OwnerTableProps {
  readonly ring: Ring;
  readonly colors: ReadonlyMap<string, string>;
  readonly load: RingLoad | undefined;
}

export function Swatch({ color, opacity }: { color: string | undefined; opacity?: number }) {
  return (
    <svg width="10" height="10" aria-hidden="true" className="mr-2 inline">
      <rect width="10" height="10" rx="2" fill={color ?? "var(--muted)"} opacity={opacity} />
    </svg>
  );
}

const RUNS_SHOWN = 12;

/** Which buckets; very many of them only for who asks. */
export function BucketCell({ buckets }: { buckets: readonly number[] }) {
  const runs = runsOf(new Map(buckets.map((one) => [one, ""])));
  const text = describeRuns(runs);
  return (
    <td className="min-w-40 text-xs text-muted">
      {runs.length <= RUNS_SHOWN ? (
        text
      ) : (
        <details>
          <summary>in {runs.length} places</summary>
          {text}
        </details>
      )}
    </td>
  );
}

const HEADS = ["Buckets", "Waiting", "Running", "Epoch"];

export function OwnerTable({ ring, colors, load }: OwnerTableProps) {
  return (
    <Panel title={`Owners, for queues ${ring.queues.join(", ")}`} flush>
      <Scroller label="Owners">
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Worker</th>
              {HEADS.map((head) => (
                <th key={head} scope="col" className="num">
                  {head}
                </th>
              ))}
              <th scope="col">Which</th>
            </tr>
          </thead>
          <tbody>
            {ring.owners.map(({ worker, buckets, epoch }) => {
              const { waiting, running, isCut } = sumOf(load, buckets);
              return (
                <tr key={worker}>
                  <td className="whitespace-nowrap">
                    <Swatch color={colors.get(worker)} />
                    <code title={worker}>{shortId(worker)}</code>
                  </td>
                  <td className="num">{buckets.length}</td>
                  <td className="num">{load === undefined ? "…" : atLeast(waiting, isCut)}</td>
                  <td className="num">{load === undefined ? "…" : formatCount(running)}</td>
                  <td className="num">{epoch}</td>
                  <BucketCell buckets={buckets} />
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroller>
    </Panel>
  );
}
