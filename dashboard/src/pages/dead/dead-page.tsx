import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearch } from "wouter";
import type { DeadGroup } from "../../api/types.ts";
import { formatCount, plural } from "../../format.ts";
import { useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Ago } from "../../ui/time.tsx";
import { ActOnDead, type DeadAct } from "./act-on-dead.tsx";

interface Groups {
  readonly groups: readonly DeadGroup[];
  readonly isCut: boolean;
}

/** Dead letters by what they died of. */
export function DeadPage() {
  const queue = new URLSearchParams(useSearch()).get("queue") ?? "";
  const { api } = useSession();
  const queryKey = ["dead", queue];
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) => api.get<Groups>("/v1/dead-letters/groups", { queue }, signal),
  });
  useRefreshOn(queryKey, (event) => {
    if (event.kind !== "summary") return false;
    // Those that were redriven are pending again, and told as such.
    return event.summary.counts.some(({ state }) => /^(dead|purged|pending)$/.test(state));
  });
  return (
    <Page title={queue === "" ? "Dead letters" : `Dead letters of ${queue}`}>
      {queue === "" ? null : (
        <Link href="/dead-letters" className="underline">
          Those of all queues
        </Link>
      )}
      <Loaded query={query}>{(found) => <Desk key={queue} {...found} />}</Loaded>
    </Page>
  );
}

const keyOf = ({ queue, cause, reason }: DeadGroup): string => [queue, cause, reason].join("\n");

function Desk({ groups, isCut }: Groups) {
  const { may } = useSession();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [act, setAct] = useState<DeadAct>();
  const chosen = groups.filter((group) => selected.has(keyOf(group)));
  const ids = chosen.flatMap((group) => group.ids);
  const toggle = (group: DeadGroup): void => {
    const next = new Set(selected);
    if (!next.delete(keyOf(group))) next.add(keyOf(group));
    setSelected(next);
  };
  const canAct = may("dead.redrive");
  if (groups.length === 0) return <Empty>Nothing has died.</Empty>;
  return (
    <Panel
      title={plural(groups.length, "error")}
      flush
      aside={
        canAct ? (
          <div className="flex flex-wrap items-center gap-2">
            <span className="text-xs text-muted">{formatCount(ids.length)} selected</span>
            <Button kind="primary" disabled={ids.length === 0} onClick={() => setAct("redrive")}>
              Redrive
            </Button>
            <Button kind="danger" disabled={ids.length === 0} onClick={() => setAct("purge")}>
              Purge
            </Button>
          </div>
        ) : null
      }
    >
      <Scroller label="Errors">
        <GroupTable groups={groups} selected={selected} onToggle={canAct ? toggle : undefined} />
      </Scroller>
      {isCut ? (
        <p className="px-4 py-2 text-xs text-muted">
          These are the newest 10,000; older ones are shown when they are gone.
        </p>
      ) : null}
      {act === undefined ? null : (
        <ActOnDead
          act={act}
          ids={ids}
          onDone={() => setSelected(new Set())}
          onClose={() => setAct(undefined)}
        />
      )}
    </Panel>
  );
}

interface GroupTableProps {
  readonly groups: readonly DeadGroup[];
  readonly selected: ReadonlySet<string>;
  readonly onToggle: ((group: DeadGroup) => void) | undefined;
}

function GroupTable({ groups, selected, onToggle }: GroupTableProps) {
  return (
    <table className="table">
      <thead>
        <tr>
          {onToggle === undefined ? null : <th scope="col">Select</th>}
          <th scope="col" className="num">
            Tasks
          </th>
          <th scope="col">Error</th>
          <th scope="col">Queue</th>
          <th scope="col">Last</th>
          <th scope="col">First</th>
          <th scope="col">Newest task</th>
        </tr>
      </thead>
      <tbody>
        {groups.map((group) => (
          <tr key={keyOf(group)}>
            {onToggle === undefined ? null : (
              <td>
                <input
                  type="checkbox"
                  className="size-5 accent-accent"
                  aria-label={`Select ${group.reason}`}
                  checked={selected.has(keyOf(group))}
                  onChange={() => onToggle(group)}
                />
              </td>
            )}
            <td className="num font-medium">{formatCount(group.count)}</td>
            <td className="min-w-64">
              {group.reason}
              <p className="text-xs text-muted">{group.cause.replaceAll("_", " ")}</p>
            </td>
            <td>{group.queue}</td>
            <td>
              <Ago at={group.lastAt} />
            </td>
            <td>
              <Ago at={group.firstAt} />
            </td>
            <td>
              <Link href={`/tasks/${group.ids.at(-1)}`} className="font-mono text-accent underline">
                {group.ids.at(-1)}
              </Link>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
