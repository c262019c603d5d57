import { memo } from "react";
import type { BucketMove, RingPoint } from "../../../../src/cluster/ring.ts";
import { BUCKETS, pieceOf, pointAt, type Run, turnOf, turnOfBucket } from "./ring-math.ts";

const POINTS = [50, 58] as const;
const OWNED = [70, 94] as const;
const MOVED = [96, 104] as const;
const SIZE = 110;

export interface RingCircleProps {
  readonly runs: readonly Run[];
  readonly colors: ReadonlyMap<string, string>;
  /** Of all workers, and of the one that would come. */
  readonly points: readonly RingPoint[];
  /** Drawn outside, in the colour of who would get them. */
  readonly moves: readonly BucketMove[];
  /** Pointed at. */
  readonly bucket: number | undefined;
}

/**
 * The buckets as a circle, clockwise from the top, and inside it the ring on which the virtual
 * nodes of workers are. The tables beside it say the same in words.
 */
export const RingCircle = memo(function Circle(props: RingCircleProps) {
  const { runs, colors, points, moves, bucket } = props;
  const owners = new Set(runs.map(({ owner }) => owner)).size;
  return (
    <svg
      viewBox={`${-SIZE} ${-SIZE} ${2 * SIZE} ${2 * SIZE}`}
      role="img"
      aria-label={
        `${BUCKETS} buckets in the colours of their owners, and ${points.length} virtual nodes` +
        (moves.length === 0 ? "" : `; ${moves.length} buckets would move`)
      }
      className="mx-auto block w-full max-w-lg"
    >
      {runs.map((run) => (
        <path
          key={run.from}
          d={pieceOf(run, BUCKETS, OWNED)}
          fill={colors.get(run.owner) ?? "currentColor"}
        />
      ))}
      <VirtualNodes points={points} colors={colors} />
      {moves.map(({ bucket: moved, to }) => (
        <path
          key={moved}
          d={pieceOf({ from: moved, to: moved }, BUCKETS, MOVED)}
          fill={to === undefined ? "var(--bad)" : (colors.get(to) ?? "var(--ink)")}
        />
      ))}
      {bucket === undefined ? null : <Pointer bucket={bucket} />}
      <text textAnchor="middle" className="fill-ink text-[18px] font-semibold">
        {owners}
      </text>
      <text textAnchor="middle" y="14" className="fill-muted text-[10px]">
        {owners === 1 ? "owner" : "owners"}
      </text>
    </svg>
  );
});

/** One path per worker: hundreds of elements would be slow to draw. */
function VirtualNodes({ points, colors }: Pick<RingCircleProps, "points" | "colors">) {
  const ticks = new Map<string, string>();
  for (const { position, worker } of points) {
    const [x1, y1] = pointAt(turnOf(position), 1, POINTS[0]);
    const [x2, y2] = pointAt(turnOf(position), 1, POINTS[1]);
    const tick = `M${x1.toFixed(2)} ${y1.toFixed(2)}L${x2.toFixed(2)} ${y2.toFixed(2)}`;
    ticks.set(worker, (ticks.get(worker) ?? "") + tick);
  }
  return (
    <g fill="none" strokeWidth="0.7">
      <circle r={POINTS[0]} stroke="var(--line)" />
      {[...ticks].map(([worker, path]) => (
        <path key={worker} d={path} stroke={colors.get(worker) ?? "currentColor"} />
      ))}
    </g>
  );
}

/** From where the bucket is on the ring to where it is in the order of buckets. */
function Pointer({ bucket }: { bucket: number }) {
  const [x0, y0] = pointAt(turnOfBucket(bucket), 1, POINTS[0]);
  const [x1, y1] = pointAt(turnOfBucket(bucket), 1, POINTS[1] + 4);
  const [x2, y2] = pointAt(bucket + 0.5, BUCKETS, OWNED[0] - 2);
  const [x3, y3] = pointAt(bucket + 0.5, BUCKETS, OWNED[1] + 2);
  return (
    <g stroke="var(--ink)" strokeWidth="1.6" strokeLinecap="round">
      <line x1={x0} y1={y0} x2={x1} y2={y1} />
      <line x1={x1} y1={y1} x2={x2} y2={y2} strokeWidth="0.6" strokeDasharray="2 2" />
      <line x1={x2} y1={y2} x2={x3} y2={y3} />
      <circle cx={x3} cy={y3} r="2.5" fill="var(--ink)" />
    </g>
  );
}
