import { useQuery } from "@tanstack/react-query";
import type { QuotaUse } from "../../api/types.ts";
import { formatBytes, formatCount, formatRate } from "../../format.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Facts, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";

const KEY = ["quota"];

/** What a tenant has, and may have. */
export function TenantUse() {
  const { api, me } = useSession();
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => api.get<QuotaUse>("/v1/quota", {}, signal),
  });
  useRefreshOn(KEY, ({ kind }) => kind === "summary");
  return (
    <Panel title={`Tenant ${me.tenant}`}>
      <Loaded query={query}>
        {({ used, pendingTasks, pendingBytes, rate }) => (
          <Facts
            items={[
              ["Tasks waiting or running", `${formatCount(used.tasks)}${of(pendingTasks)}`],
              [
                "Their payloads",
                formatBytes(used.bytes) +
                  (pendingBytes === null ? "" : ` of ${formatBytes(pendingBytes)}`),
              ],
              [
                "Creates",
                rate === null ? "no limit" : `${formatRate(rate.count / rate.seconds)} per second`,
              ],
              ["Queues", me.queues === "all" ? "all" : me.queues.join(", ")],
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

const of = (limit: number | null): string => (limit === null ? "" : ` of ${formatCount(limit)}`);
