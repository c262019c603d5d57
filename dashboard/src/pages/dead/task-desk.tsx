import { useState } from "react";
import { Link } from "wouter";
import type { DeadGroup } from "../../api/types.ts";
import { formatCount, plural } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Ago } from "../../ui/time.tsx";
import { ActOnDead, type DeadAct } from "./act-on-dead.tsx";
import type { DeadFilter } from "./dead-filter.ts";
import { keyOf, type Which, whichOf } from "./selection.ts";

export interface TaskDeskProps {
  readonly groups: readonly DeadGroup[];
  readonly isCut: boolean;
  /** By which they were found. */
  readonly filter: DeadFilter;
  /** Others are being looked for. */
  readonly isOld: boolean;
}

/** Tasks that died, by what they died of. */
export function TaskDesk({ groups, isCut, filter, isOld }: TaskDeskProps) {
  const { may } = useSession();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [asked, setAsked] = useState<{ readonly act: DeadAct; readonly which: Which }>();
  const which = whichOf(groups, selected, filter);
  const toggle = (group: DeadGroup): void => {
    const next = new Set(selected);
    if (!next.delete(keyOf(group))) next.add(keyOf(group));
    setSelected(next);
  };
  const canAct = may("dead.redrive");
  return (
    <Panel
      title={groups.length === 0 ? "Tasks" : `Tasks: ${plural(groups.length, "error")}`}
      flush
      className={isOld ? "opacity-60" : ""}
      aside={
        canAct && groups.length > 0 ? (
          <Acts
            which={which}
            isOld={isOld}
            isFiltered={Object.keys(filter).length > 0}
            onAsk={(act) => which !== undefined && setAsked({ act, which })}
            onClear={() => setSelected(new Set())}
          />
        ) : null
      }
    >
      {groups.length === 0 ? (
        <Empty>
          {Object.keys(filter).length === 0 ? "Nothing has died." : "Nothing like that."}
        </Empty>
      ) : (
        <Scroller label="Errors">
          <GroupTable groups={groups} selected={selected} onToggle={canAct ? toggle : undefined} />
        </Scroller>
      )}
      {isCut ? (
        <p className="px-4 py-2 text-xs text-muted">
          These are the newest 10,000; “all” means the older ones as well.
        </p>
      ) : null}
      {asked === undefined ? null : (
        <ActOnDead
          {...asked}
          onDone={() => setSelected(new Set())}
          onClose={() => setAsked(undefined)}
        />
      )}
    </Panel>
  );
}

interface ActsProps {
  /** Undefined when what was selected is gone. */
  readonly which: Which | undefined;
  readonly isOld: boolean;
  readonly isFiltered: boolean;
  readonly onAsk: (act: DeadAct) => void;
  readonly onClear: () => void;
}

function Acts({ which, isOld, isFiltered, onAsk, onClear }: ActsProps) {
  const isGone = which === undefined;
  const isAll = !isGone && "filter" in which;
  const gone = isFiltered ? "nothing of what was selected is here" : "what was selected is gone";
  const many = isGone || isAll ? undefined : formatCount(which.ids.length);
  return (
    <div className="flex flex-wrap items-center gap-2">
      <span className="text-xs text-muted">
        {isGone ? gone : isAll ? "all of them" : `${many} selected`}
      </span>
      {isAll ? null : (
        <Button kind="quiet" onClick={onClear}>
          Select none
        </Button>
      )}
      <Button kind="primary" disabled={isGone || isOld} onClick={() => onAsk("redrive")}>
        {isAll ? "Redrive all" : "Redrive"}
      </Button>
      <Button kind="danger" disabled={isGone || isOld} onClick={() => onAsk("purge")}>
        {isAll ? "Purge all" : "Purge"}
      </Button>
    </div>
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
