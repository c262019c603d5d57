import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { part } from "../../api/http.ts";
import type { Consumer, ParkedGroup } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { formatCount, plural } from "../../format.ts";
import { useLive, useRefreshOn } from "../../live/hooks.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { State } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { parkedWatch } from "./parked-watch.ts";

interface Parked {
  readonly groups: readonly ParkedGroup[];
  readonly isCut: boolean;
}

/** Events that consumers could not handle: they stopped there, or set their streams aside. */
export function EventDesk() {
  const { api } = useSession();
  const { status } = useLive();
  const queryKey = ["parked"];
  const query = useQuery({
    queryKey,
    queryFn: ({ signal }) => api.get<Parked>("/v1/parked-streams/groups", {}, signal),
  });
  const [concernsParked] = useState(() => parkedWatch(status));
  useRefreshOn(queryKey, concernsParked);
  const stopped = status?.consumers.filter(({ state }) => state === "quarantined") ?? [];
  return (
    <Loaded query={query}>
      {({ groups, isCut }) => <Desk stopped={stopped} groups={groups} isCut={isCut} />}
    </Loaded>
  );
}

const keyOf = ({ consumer, state, error }: ParkedGroup): string =>
  [consumer, state, error].join("\n");

function Desk({ stopped, groups, isCut }: Parked & { readonly stopped: readonly Consumer[] }) {
  const { may } = useSession();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isAsking, setAsking] = useState(false);
  const chosen = groups.filter((group) => selected.has(keyOf(group)));
  const toggle = (group: ParkedGroup): void => {
    const next = new Set(selected);
    if (!next.delete(keyOf(group))) next.add(keyOf(group));
    setSelected(next);
  };
  const canAct = may("cluster.change");
  const isEmpty = stopped.length === 0 && groups.length === 0;
  return (
    <Panel
      title="Events"
      flush
      aside={
        canAct && groups.some(({ state }) => state === "parked") ? (
          <Button kind="primary" disabled={chosen.length === 0} onClick={() => setAsking(true)}>
            Replay
          </Button>
        ) : null
      }
    >
      {isEmpty ? <Empty>Every consumer could handle its events.</Empty> : null}
      {isEmpty ? null : (
        <Scroller label="Events">
          <EventTable
            stopped={stopped}
            groups={groups}
            selected={selected}
            onToggle={canAct ? toggle : undefined}
          />
        </Scroller>
      )}
      {isCut ? (
        <p className="px-4 py-2 text-xs text-muted">These are the newest 1,000 streams.</p>
      ) : null}
      {isAsking ? (
        <Replay
          groups={chosen}
          onDone={() => setSelected(new Set())}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </Panel>
  );
}

interface EventTableProps {
  readonly stopped: readonly Consumer[];
  readonly groups: readonly ParkedGroup[];
  readonly selected: ReadonlySet<string>;
  readonly onToggle: ((group: ParkedGroup) => void) | undefined;
}

function EventTable({ stopped, groups, selected, onToggle }: EventTableProps) {
  const canAct = onToggle !== undefined;
  return (
    <table className="table">
      <thead>
        <tr>
          {canAct ? <th scope="col">Select</th> : null}
          <th scope="col" className="num">
            Events
          </th>
          <th scope="col">Error</th>
          <th scope="col">Consumer</th>
          <th scope="col">State</th>
          <th scope="col">Last</th>
          <th scope="col">First event</th>
        </tr>
      </thead>
      <tbody>
        {stopped.map((consumer) => (
          <StoppedRow key={consumer.name} consumer={consumer} canAct={canAct} />
        ))}
        {groups.map((group) => (
          <ParkedRow
            key={keyOf(group)}
            group={group}
            isSelected={selected.has(keyOf(group))}
            onToggle={onToggle === undefined ? undefined : () => onToggle(group)}
          />
        ))}
      </tbody>
    </table>
  );
}

const ConsumerLink = ({ name }: { name: string }) => (
  <Link href={`/consumers?name=${encodeURIComponent(name)}`} className="underline">
    {name}
  </Link>
);

/** A whole consumer waits at one event: what may be done about it is on its own page. */
function StoppedRow({ consumer, canAct }: { consumer: Consumer; canAct: boolean }) {
  const { name, state, poison } = consumer;
  return (
    <tr>
      {canAct ? <td>–</td> : null}
      <td className="num font-medium">1</td>
      <td className="min-w-64">{poison?.error ?? "No error was recorded."}</td>
      <td>
        <ConsumerLink name={name} />
      </td>
      <td>
        <State name={state} />
      </td>
      <td>{poison?.since === undefined ? "–" : <Ago at={poison.since} />}</td>
      <td>{poison === undefined ? "–" : `position ${formatCount(poison.position)}`}</td>
    </tr>
  );
}

interface ParkedRowProps {
  readonly group: ParkedGroup;
  readonly isSelected: boolean;
  readonly onToggle: (() => void) | undefined;
}

function ParkedRow({ group, isSelected, onToggle }: ParkedRowProps) {
  const { consumer, state, error, stack, events, lastAt, streams } = group;
  const first = streams.at(-1);
  return (
    <tr>
      {onToggle === undefined ? null : (
        <td>
          {state === "parked" ? (
            <input
              type="checkbox"
              className="size-5 accent-accent"
              aria-label={`Select ${error} of ${consumer}`}
              checked={isSelected}
              onChange={onToggle}
            />
          ) : (
            "–"
          )}
        </td>
      )}
      <td className="num font-medium">{formatCount(events)}</td>
      <td className="min-w-64">
        {error}
        <p className="text-xs text-muted">of {plural(streams.length, "stream")}</p>
        {stack === undefined ? null : (
          <details>
            <summary className="text-xs text-muted">Stack</summary>
            <pre className="font-mono text-xs whitespace-pre-wrap">{stack}</pre>
          </details>
        )}
      </td>
      <td>
        <ConsumerLink name={consumer} />
      </td>
      <td>
        <State name={state} />
      </td>
      <td>
        <Ago at={lastAt} />
      </td>
      <td>
        {first === undefined ? "–" : `${first.type} ${first.id}`}
        {first?.position === undefined ? "" : `, position ${formatCount(first.position)}`}
      </td>
    </tr>
  );
}

interface ReplayProps {
  readonly groups: readonly ParkedGroup[];
  readonly onDone: () => void;
  readonly onClose: () => void;
}

function Replay({ groups, onDone, onClose }: ReplayProps) {
  const { api } = useSession();
  const act = useAct();
  const [done, setDone] = useState(0);
  const events = groups.reduce((sum, group) => sum + group.events, 0);
  const replay = async (reason: string | undefined): Promise<void> => {
    for (const { consumer, streams } of groups) {
      await api.post(`/v1/consumers/${part(consumer)}/replay`, {
        streams: streams.map(({ type, id }) => ({ type, id })),
        ...(reason === undefined ? {} : { reason }),
      });
      setDone((before) => before + 1);
    }
    onDone();
  };
  return (
    <Confirm
      title={`Replay ${plural(events, "event")}?`}
      verb="Replay"
      reason="optional"
      onConfirm={(reason) => act(() => replay(reason), "They are replayed in order.")}
      onClose={onClose}
    >
      <p>
        Their consumers handle them again, in order and before newer ones of the same streams. A
        stream whose handler was not fixed is set aside again.
      </p>
      {done > 0 && groups.length > 1 ? (
        <progress
          className="bar"
          value={done}
          max={groups.length}
          aria-label={`${done} of ${groups.length} errors`}
        />
      ) : null}
    </Confirm>
  );
}
