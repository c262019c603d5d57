import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { part } from "../../api/http.ts";
import type { ApiKey, QuotaUse } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { ListEnd } from "../../ui/list-end.tsx";
import { Empty, Facts, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Badge } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { EditQuota } from "./edit-quota.tsx";
import { describeQuota, describeUse, USE_REFRESH_MS } from "./quota-text.ts";

const KEYS_MAX = 200;

export interface TenantPanelProps {
  readonly tenant: string;
  readonly keys: readonly ApiKey[];
}

export function TenantPanel({ tenant, keys }: TenantPanelProps) {
  const { api, may } = useSession();
  const [isEditing, setEditing] = useState(false);
  const queryKey = ["quota", tenant];
  // Those that may be used first: the others are history.
  const isActive = ({ state }: ApiKey): number => (state === "active" ? 0 : 1);
  const newest = keys.toReversed().toSorted((a, b) => isActive(a) - isActive(b));
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) => api.get<QuotaUse>(`/v1/tenants/${part(tenant)}/quota`, {}, signal),
  });
  useRefreshOn(queryKey, ({ kind }) => kind === "summary", USE_REFRESH_MS);
  return (
    <>
      <Panel
        title={`Tenant ${tenant}`}
        aside={
          may("cluster.change") && query.data !== undefined ? (
            <Button onClick={() => setEditing(true)}>Change the quota</Button>
          ) : null
        }
      >
        <Loaded query={query}>
          {(quota) => (
            <Facts
              items={[
                ["Quota", describeQuota(quota)],
                ["Used", describeUse(quota)],
              ]}
            />
          )}
        </Loaded>
        {isEditing && query.data !== undefined ? (
          <EditQuota quota={query.data} onClose={() => setEditing(false)} />
        ) : null}
      </Panel>
      <Panel title="API keys" flush>
        {keys.length === 0 ? (
          <Empty>None. “tidemill key create” makes one.</Empty>
        ) : (
          <Scroller label="API keys">
            <KeyTable keys={newest.slice(0, KEYS_MAX)} />
          </Scroller>
        )}
        <ListEnd shown={KEYS_MAX} all={keys.length} how="“tidemill key list” has the others" />
      </Panel>
    </>
  );
}

function KeyTable({ keys }: { keys: readonly ApiKey[] }) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">State</th>
          <th scope="col">Scopes</th>
          <th scope="col">Queues</th>
          <th scope="col">Last used</th>
          <th scope="col">Expires</th>
          <th scope="col">Act</th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <KeyRow key={key.id} apiKey={key} />
        ))}
      </tbody>
    </table>
  );
}

const TONES = { active: "good", expired: "calm", revoked: "bad" } as const;

function KeyRow({ apiKey }: { apiKey: ApiKey }) {
  const { may } = useSession();
  const [isAsking, setAsking] = useState(false);
  const { id, name, state, scopes, queues, lastUsedAt, expiresAt } = apiKey;
  return (
    <tr>
      <td>
        <code>{id}</code>
        {name === undefined ? null : <p className="text-xs text-muted">{name}</p>}
      </td>
      <td>
        <Badge tone={TONES[state]}>{state}</Badge>
      </td>
      <td>{scopes.join(", ")}</td>
      <td>{queues === "all" ? "all" : queues.join(", ")}</td>
      <td>{lastUsedAt === undefined ? "never" : <Ago at={lastUsedAt} />}</td>
      <td>{expiresAt === undefined ? "never" : <Ago at={expiresAt} />}</td>
      <td>
        {state === "active" && may("cluster.change") ? (
          <Button kind="danger" aria-label={`Revoke ${id}`} onClick={() => setAsking(true)}>
            Revoke
          </Button>
        ) : (
          "–"
        )}
        {isAsking ? <RevokeKey apiKey={apiKey} onClose={() => setAsking(false)} /> : null}
      </td>
    </tr>
  );
}

function RevokeKey({ apiKey: { id }, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const { api } = useSession();
  const act = useAct();
  return (
    <Confirm
      title={`Revoke key ${id}?`}
      verb="Revoke it for ever"
      isDangerous
      onConfirm={() => act(() => api.post(`/v1/keys/${id}/revoke`), `Key ${id} is revoked.`)}
      onClose={onClose}
    >
      <p>
        Every server refuses it within seconds, and ends the streams that it opened. It cannot be
        undone: whoever uses it needs another key.
      </p>
    </Confirm>
  );
}
