import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearch } from "wouter";
import type { ApiKey, Quota } from "../../api/types.ts";
import { formatCount } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { SearchField } from "../../ui/field.tsx";
import { ListEnd } from "../../ui/list-end.tsx";
import { Page } from "../../ui/page.tsx";
import { Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { describeQuota } from "./quota-text.ts";
import { TenantPanel } from "./tenant-panel.tsx";

interface Tenants {
  readonly quotas: readonly Quota[];
  readonly keys: readonly ApiKey[];
}

/** Who may have how much, and with which keys. */
export function TenantsPage() {
  const { api, me } = useSession();
  const chosen = new URLSearchParams(useSearch()).get("tenant");
  const query = useQuery({
    queryKey: ["tenants"],
    queryFn: async ({ signal }): Promise<Tenants> => {
      const [{ tenants }, { keys }] = await Promise.all([
        api.get<{ tenants: readonly Quota[] }>("/v1/tenants", {}, signal),
        api.get<{ keys: readonly ApiKey[] }>("/v1/keys", {}, signal),
      ]);
      return { quotas: tenants, keys };
    },
  });
  return (
    <Page title="Tenants">
      <Panel title="Tenants with a quota or a key" flush>
        <Loaded query={query}>
          {({ quotas, keys }) => (
            <TenantTable quotas={quotas} keys={keys} own={me.tenant} chosen={chosen} />
          )}
        </Loaded>
      </Panel>
      {chosen === null || query.data === undefined ? null : (
        <TenantPanel
          key={chosen}
          tenant={chosen}
          keys={query.data.keys.filter(({ tenant }) => tenant === chosen)}
        />
      )}
    </Page>
  );
}

interface TenantTableProps extends Tenants {
  readonly own: string;
  readonly chosen: string | null;
}

/** Rows of a table that a person looks through; more are found by a part of their name. */
const ROWS_MAX = 200;

function TenantTable({ quotas, keys, own, chosen }: TenantTableProps) {
  const [part, setPart] = useState("");
  const all = [own, ...quotas.map(({ tenant }) => tenant), ...keys.map(({ tenant }) => tenant)];
  const names = [...new Set(all)].sort();
  const found = names.filter((name) => name.toLowerCase().includes(part.trim().toLowerCase()));
  return (
    <>
      {names.length <= ROWS_MAX ? null : (
        <div className="max-w-sm px-4 pb-3">
          <SearchField label="Part of a tenant’s name" value={part} onValue={setPart} />
        </div>
      )}
      <Scroller label="Tenants">
        <TenantRows names={found.slice(0, ROWS_MAX)} quotas={quotas} keys={keys} chosen={chosen} />
      </Scroller>
      <ListEnd shown={ROWS_MAX} all={found.length} how="type a part of its name" />
    </>
  );
}

interface TenantRowsProps extends Tenants {
  readonly names: readonly string[];
  readonly chosen: string | null;
}

function TenantRows({ names, quotas, keys, chosen }: TenantRowsProps) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Tenant</th>
          <th scope="col">Quota</th>
          <th scope="col" className="num">
            Active keys
          </th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => {
          const quota = quotas.find(({ tenant }) => tenant === name);
          const active = keys.filter((key) => key.tenant === name && key.state === "active");
          return (
            <tr key={name} className={name === chosen ? "bg-sunken" : ""}>
              <td>
                <Link
                  href={`/tenants?tenant=${encodeURIComponent(name)}`}
                  aria-current={name === chosen ? "true" : undefined}
                  className="font-medium underline"
                >
                  {name}
                </Link>
              </td>
              <td>{quota === undefined ? "no limit" : describeQuota(quota)}</td>
              <td className="num">{formatCount(active.length)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
