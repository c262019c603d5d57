import type { BucketMove } from "../../../../src/cluster/ring.ts";
import { BUCKETS, pieceOf, pointAt, type Run } from "./ring-math.ts";

const OWNED = [70, 94] as const;
const MOVED = [96, 103] as const;
const SIZE = 110;

export interface RingCircleProps {
  readonly runs: readonly Run[];
  readonly colors: ReadonlyMap<string, string>;
  /** Drawn outside, in the colour of who would get them. */
  readonly moves: readonly BucketMove[];
  /** Pointed at. */
  readonly bucket: number | undefined;
}

/** The buckets as a circle, clockwise from the top. The table beside it says the same in words. */
export function RingCircle({ runs, colors, moves, bucket }: RingCircleProps) {
  const owners = new Set(runs.map(({ owner }) => owner)).size;
  return (
    <svg
      viewBox={`${-SIZE} ${-SIZE} ${2 * SIZE} ${2 * SIZE}`}
      role="img"
      aria-label={`${BUCKETS} buckets in the colours of their owners`}
      className="mx-auto block w-full max-w-md"
    >
      {runs.map((run) => (
        <path
          key={run.from}
          d={pieceOf(run, BUCKETS, OWNED)}
          fill={colors.get(run.owner) ?? "currentColor"}
        />
      ))}
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
      <text textAnchor="middle" y="14" className="fill-muted text-[9px]">
        {owners === 1 ? "owner" : "owners"}
      </text>
    </svg>
  );
}

function Pointer({ bucket }: { bucket: number }) {
  const [x1, y1] = pointAt(bucket + 0.5, BUCKETS, 34);
  const [x2, y2] = pointAt(bucket + 0.5, BUCKETS, 96);
  return (
    <g stroke="var(--ink)" strokeWidth="2" strokeLinecap="round">
      <line x1={x1} y1={y1} x2={x2} y2={y2} />
      <circle cx={x2} cy={y2} r="2.5" fill="var(--ink)" />
    </g>
  );
}
