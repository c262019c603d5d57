import type { OpenGaps as Gaps } from "../../api/types.ts";
import { formatCount, formatSeconds } from "../../format.ts";
import { Panel, Scroller } from "../../ui/panel.tsx";

/** Positions that may still be filled, and the transactions that may do so. */
export function OpenGaps({ gaps: { positions, holders } }: { gaps: Gaps }) {
  if (positions.length === 0) return null;
  return (
    <Panel title="Open gaps" flush>
      <p className="px-4 pb-3">
        Position {positions.map(formatCount).join(", ")} may still be filled by an unfinished
        transaction. Consumers wait there, because to pass it could lose an event.
      </p>
      {holders.length === 0 ? (
        <p className="px-4 pb-3 text-muted">
          Nobody is visible who could hold it; it closes by itself.
        </p>
      ) : (
        <Scroller label="Transactions">
          <table className="table">
            <thead>
              <tr>
                <th scope="col" className="num">
                  Pid
                </th>
                <th scope="col">Application</th>
                <th scope="col">User</th>
                <th scope="col">State</th>
                <th scope="col" className="num">
                  Age
                </th>
                <th scope="col">Query</th>
              </tr>
            </thead>
            <tbody>
              {holders.map((holder) => (
                <tr key={`${holder.pid}-${holder.application}`}>
                  <td className="num">{holder.pid ?? "prepared"}</td>
                  <td>{holder.application || "–"}</td>
                  <td>{holder.user ?? "–"}</td>
                  <td>{holder.state ?? "–"}</td>
                  <td className="num">{formatSeconds(holder.ageSeconds)}</td>
                  <td className="min-w-64 font-mono text-xs">{holder.query ?? "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroller>
      )}
    </Panel>
  );
}
