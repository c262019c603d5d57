import type { BucketMove } from "../../../../src/cluster/ring.ts";
import type { RingLoad } from "../../api/types.ts";
import { plural, shortId } from "../../format.ts";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { atLeast, liveOf, sumOf } from "./load-math.ts";
import { BucketCell, Swatch } from "./owner-table.tsx";
import { NEWCOMER } from "./ring-controls.tsx";
import { groupMoves } from "./ring-math.ts";

export interface MoveTableProps {
  readonly moves: readonly BucketMove[];
  /** Of the whole ring. */
  readonly buckets: number;
  readonly colors: ReadonlyMap<string, string>;
  readonly load: RingLoad | undefined;
}

const workerName = (worker: string | undefined): string =>
  worker === undefined ? "nobody" : worker === NEWCOMER ? NEWCOMER : shortId(worker);

/** Exactly what would move, from whom to whom. */
export function MoveTable({ moves, buckets, colors, load }: MoveTableProps) {
  return (
    <Panel title="What would move" flush>
      <p role="status" className="px-4 pb-2">
        {plural(moves.length, "bucket")} of {buckets} would move; nothing has changed.
      </p>
      {moves.length === 0 ? (
        <Empty>Everybody keeps what they have.</Empty>
      ) : (
        <Scroller label="Moves">
          <table className="table">
            <thead>
              <tr>
                <th scope="col">From</th>
                <th scope="col">To</th>
                <th scope="col" className="num">
                  Buckets
                </th>
                <th scope="col" className="num">
                  Tasks in them
                </th>
                <th scope="col">Which</th>
              </tr>
            </thead>
            <tbody>
              {groupMoves(moves).map(({ from, to, buckets: moved }) => {
                const sum = sumOf(load, moved);
                return (
                  <tr key={`${from}-${to}`}>
                    <td className="whitespace-nowrap">
                      <Swatch color={colors.get(from ?? "")} />
                      {workerName(from)}
                    </td>
                    <td className="whitespace-nowrap">
                      <Swatch color={colors.get(to ?? "")} />
                      {workerName(to)}
                    </td>
                    <td className="num">{moved.length}</td>
                    <td className="num">
                      {load === undefined ? "…" : atLeast(liveOf(sum), sum.isCut)}
                    </td>
                    <BucketCell buckets={moved} />
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroller>
      )}
    </Panel>
  );
}
