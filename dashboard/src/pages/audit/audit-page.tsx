import { useInfiniteQuery } from "@tanstack/react-query";
import { isCut, nextUpTo } from "../../api/pages.ts";
import type { AuditedAct } from "../../api/types.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Badge } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { describeAct, describeStatus } from "./act-text.ts";

const PAGE_ROWS = 50;
const PAGES_MAX = 20;

interface Acts {
  readonly acts: readonly AuditedAct[];
  readonly cursor?: string;
}

/** Who did what, and why. It follows by itself, as everything does when somebody acts. */
export function AuditPage() {
  const { api } = useSession();
  const query = useInfiniteQuery({
    queryKey: ["audit"],
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) =>
      api.get<Acts>("/v1/audit", { cursor: pageParam, limit: PAGE_ROWS }, signal),
    getNextPageParam: nextUpTo(PAGES_MAX),
  });
  const { error, refetch } = query;
  const data = query.data?.pages.flatMap((page) => page.acts);
  return (
    <Page title="Audit">
      <Panel title="Who did what, newest first" flush>
        <Loaded query={{ data, error, refetch }}>
          {(acts) =>
            acts.length === 0 ? (
              <Empty>Nobody did anything through a server within a year.</Empty>
            ) : (
              <Scroller label="Acts">
                <ActTable acts={acts} />
              </Scroller>
            )
          }
        </Loaded>
        {query.hasNextPage ? (
          <p className="px-4 py-2 text-right">
            <Button
              kind="quiet"
              disabled={query.isFetchingNextPage}
              onClick={() => void query.fetchNextPage()}
            >
              Older ones
            </Button>
          </p>
        ) : null}
        {isCut(query.data?.pages, PAGES_MAX) ? (
          <p className="px-4 py-2 text-xs text-muted">
            The list ends here. Older ones are in the table audit_log.
          </p>
        ) : null}
      </Panel>
    </Page>
  );
}

function ActTable({ acts }: { acts: readonly AuditedAct[] }) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">Who</th>
          <th scope="col">What</th>
          <th scope="col">Reason</th>
          <th scope="col">Result</th>
        </tr>
      </thead>
      <tbody>
        {acts.map((act) => {
          const { text, tone } = describeStatus(act.status);
          return (
            <tr key={act.id}>
              <td>
                <Ago at={act.at} />
              </td>
              <td>
                {act.subject}
                <p className="text-xs text-muted">{act.tenant}</p>
              </td>
              <td className="min-w-64">{describeAct(act)}</td>
              <td className="min-w-48">{act.reason ?? "–"}</td>
              <td className="whitespace-nowrap">
                <Badge tone={tone}>{text}</Badge>
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
