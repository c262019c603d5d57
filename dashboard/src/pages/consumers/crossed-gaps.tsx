import { useQuery } from "@tanstack/react-query";
import { part } from "../../api/http.ts";
import type { CrossedGap } from "../../api/types.ts";
import { formatCount, formatSeconds } from "../../format.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Ago } from "../../ui/time.tsx";

const SHOWN = 20;

/** What a consumer passed without handling anything, and why that was right. */
export function CrossedGaps({ name }: { name: string }) {
  const { api } = useSession();
  const queryKey = ["gaps", name];
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) =>
      api.get<{ gaps: readonly CrossedGap[] }>(
        `/v1/consumers/${part(name)}/gaps`,
        { limit: SHOWN },
        signal,
      ),
  });
  useRefreshOn(queryKey, (event) => event.kind === "cluster" && event.about === "gap");
  return (
    <Panel title={`Gaps that ${name} crossed`} flush>
      <Loaded query={query}>
        {({ gaps }) =>
          gaps.length === 0 ? (
            <Empty>None: it has handled every position.</Empty>
          ) : (
            <Scroller label="Gaps">
              <GapTable gaps={gaps} />
            </Scroller>
          )
        }
      </Loaded>
    </Panel>
  );
}

const HOW: Readonly<Record<string, string>> = {
  epoch: "every transaction that could fill it had ended",
  lockers: "every transaction that had the log locked had ended",
  person: "a person skipped it",
  "unsafe-time": "it was open for too long; an event may be lost",
};

function describeHow({ how, fence, reason }: CrossedGap): string {
  const proof = fence === undefined ? "" : ` (fence ${fence})`;
  const why = reason === undefined ? "" : `: ${reason}`;
  return `${HOW[how ?? ""] ?? "no evidence was kept"}${proof}${why}`;
}

function GapTable({ gaps }: { gaps: readonly CrossedGap[] }) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col" className="num">
            From
          </th>
          <th scope="col" className="num">
            To
          </th>
          <th scope="col" className="num">
            Missing
          </th>
          <th scope="col">When</th>
          <th scope="col" className="num">
            Was open
          </th>
          <th scope="col">Why</th>
        </tr>
      </thead>
      <tbody>
        {gaps.map((gap) => (
          <tr key={`${gap.position}-${gap.at}`}>
            <td className="num">{formatCount(gap.position)}</td>
            <td className="num">{formatCount(gap.to)}</td>
            <td className="num">{gap.missing === undefined ? "–" : formatCount(gap.missing)}</td>
            <td>
              <Ago at={gap.at} />
            </td>
            <td className="num">{formatSeconds(gap.openSeconds)}</td>
            <td className="min-w-64">{describeHow(gap)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
