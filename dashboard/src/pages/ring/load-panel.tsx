import type { BucketOwners } from "../../../../src/cluster/ring.ts";
import type { RingLoad } from "../../api/types.ts";
import { formatCount, plural, shortId } from "../../format.ts";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { atLeast, byBucket, liveOf } from "./load-math.ts";
import { Swatch } from "./owner-table.tsx";
import { BUCKETS } from "./ring-math.ts";

export interface LoadPanelProps {
  readonly load: RingLoad | undefined;
  readonly owners: BucketOwners;
  readonly colors: ReadonlyMap<string, string>;
}

const TOP_BUCKETS = 5;
const HEIGHT = 60;
const ENDED_OPACITY = 0.4;

/** How even the work is: tasks in each bucket, and the keys that have the most. */
export function LoadPanel({ load, owners, colors }: LoadPanelProps) {
  if (load === undefined) {
    return (
      <Panel title="Load" flush>
        <Empty>Loading…</Empty>
      </Panel>
    );
  }
  const looked =
    `Looked at the first ${formatCount(load.looked.perBucket)} of each bucket, and at the newest ` +
    `${formatCount(load.looked.ended)} that ended`;
  return (
    <Panel title="Load per bucket" aside={<p className="text-xs text-muted">{looked}</p>}>
      {load.buckets.length === 0 ? (
        <Empty>No task of this key space waits, runs or ended of late.</Empty>
      ) : (
        <>
          <Bars load={load} owners={owners} colors={colors} />
          <Key load={load} />
          <div className="mt-4 grid gap-4 lg:grid-cols-2">
            <BusyBuckets load={load} owners={owners} colors={colors} />
            <HotKeys load={load} owners={owners} colors={colors} />
          </div>
        </>
      )}
    </Panel>
  );
}

type Shown = LoadPanelProps & { readonly load: RingLoad };

const mostOf = (load: RingLoad): number =>
  Math.max(1, ...load.buckets.map((one) => liveOf(one) + one.ended));

/** One bar for each bucket, in the colour of its owner: solid what is live, light what ended. */
function Bars({ load, owners, colors }: Shown) {
  const most = mostOf(load);
  const known = byBucket(load);
  const live = load.buckets.reduce((sum, one) => sum + liveOf(one), 0);
  const height = (count: number): number => (count / most) * HEIGHT;
  return (
    <svg
      viewBox={`0 0 ${BUCKETS} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={
        `${plural(live, "live task")} in ${plural(load.buckets.length, "bucket")}; the fullest ` +
        "are in the table below"
      }
      className="h-28 w-full rounded-md bg-sunken"
    >
      {Array.from({ length: BUCKETS }, (_, bucket) => {
        const one = known.get(bucket);
        if (one === undefined) return null;
        const color = colors.get(owners.get(bucket) ?? "") ?? "var(--muted)";
        const all = height(liveOf(one) + one.ended);
        const solid = height(liveOf(one));
        return (
          <g key={bucket} fill={color}>
            <rect x={bucket} y={HEIGHT - all} width={0.9} height={all} opacity={ENDED_OPACITY} />
            <rect x={bucket} y={HEIGHT - solid} width={0.9} height={solid} />
          </g>
        );
      })}
    </svg>
  );
}

/** What the bars mean. */
function Key({ load }: { load: RingLoad }) {
  return (
    <ul className="mt-2 flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
      <li>buckets 0 to {BUCKETS - 1} from left to right, in the colours of their owners</li>
      <li>
        <Swatch color="var(--muted)" />
        waits or runs
      </li>
      <li>
        <Swatch color="var(--muted)" opacity={ENDED_OPACITY} />
        ended
      </li>
      <li>the highest bar: {plural(mostOf(load), "task")}</li>
    </ul>
  );
}

const COUNT_HEADS = ["Waiting", "Running", "Ended"];

function CountHeads() {
  return COUNT_HEADS.map((head) => (
    <th key={head} scope="col" className="num">
      {head}
    </th>
  ));
}

function OwnerCell({ owner, colors }: { owner: string | undefined } & Pick<Shown, "colors">) {
  return (
    <td className="whitespace-nowrap">
      <Swatch color={colors.get(owner ?? "")} />
      {owner === undefined ? "nobody" : <code title={owner}>{shortId(owner)}</code>}
    </td>
  );
}

function BusyBuckets({ load, owners, colors }: Shown) {
  const busiest = load.buckets
    .toSorted((a, b) => liveOf(b) + b.ended - (liveOf(a) + a.ended))
    .slice(0, TOP_BUCKETS);
  return (
    <Scroller label="Busiest buckets">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Busiest bucket</th>
            <CountHeads />
            <th scope="col">Owner</th>
          </tr>
        </thead>
        <tbody>
          {busiest.map((one) => (
            <tr key={one.bucket}>
              <td>{one.bucket}</td>
              <td className="num">{atLeast(one.waiting, one.isCut)}</td>
              <td className="num">{formatCount(one.running)}</td>
              <td className="num">{formatCount(one.ended)}</td>
              <OwnerCell owner={owners.get(one.bucket)} colors={colors} />
            </tr>
          ))}
        </tbody>
      </table>
    </Scroller>
  );
}

/** A key whose tasks wait for each other is as slow as one of them at a time. */
function HotKeys({ load, owners, colors }: Shown) {
  return (
    <Scroller label="Hot keys">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Hottest key</th>
            <CountHeads />
            <th scope="col" className="num">
              Bucket
            </th>
            <th scope="col">Owner</th>
          </tr>
        </thead>
        <tbody>
          {load.keys.slice(0, 2 * TOP_BUCKETS).map((one) => (
            <tr key={`${one.bucket}-${one.key}`}>
              <td className="max-w-60 truncate" title={one.key}>
                {one.key}
              </td>
              <td className="num">{formatCount(one.waiting)}</td>
              <td className="num">{formatCount(one.running)}</td>
              <td className="num">{formatCount(one.ended)}</td>
              <td className="num">{one.bucket}</td>
              <OwnerCell owner={owners.get(one.bucket)} colors={colors} />
            </tr>
          ))}
        </tbody>
      </table>
    </Scroller>
  );
}
