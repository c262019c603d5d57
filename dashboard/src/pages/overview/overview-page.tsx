import { useLive } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Page } from "../../ui/page.tsx";
import { Plots } from "./plots.tsx";
import { ProblemList } from "./problem-list.tsx";
import { TenantUse } from "./tenant-use.tsx";
import { WorkerTable } from "./worker-table.tsx";

/** What a person asks first. */
export function OverviewPage() {
  const live = useLive();
  const { may } = useSession();
  const isOperator = may("cluster.read");
  return (
    <Page title="Overview">
      {isOperator ? <ProblemList live={live} /> : null}
      <Plots live={live} isOperator={isOperator} />
      {isOperator ? <WorkerTable live={live} /> : <TenantUse />}
    </Page>
  );
}
