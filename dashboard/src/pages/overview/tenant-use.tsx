import { useQuery } from "@tanstack/react-query";
import type { QuotaUse } from "../../api/types.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Facts, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { describeQuota, describeUse, USE_REFRESH_MS } from "../tenants/quota-text.ts";

const KEY = ["quota"];

/** What a tenant has, and may have. */
export function TenantUse() {
  const { api, me } = useSession();
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => api.get<QuotaUse>("/v1/quota", {}, signal),
  });
  useRefreshOn(KEY, ({ kind }) => kind === "summary", USE_REFRESH_MS);
  return (
    <Panel title={`Tenant ${me.tenant}`}>
      <Loaded query={query}>
        {(quota) => (
          <Facts
            items={[
              ["Quota", describeQuota(quota)],
              ["Used", describeUse(quota)],
              ["Queues", me.queues === "all" ? "all" : me.queues.join(", ")],
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
