import { useState } from "react";
import { Link } from "wouter";
import type { Consumer } from "../../api/types.ts";
import { formatCount, formatCut, formatRate, formatSeconds, shortId } from "../../format.ts";
import { appendRate, consumerRate, type LiveState } from "../../live/live-state.ts";
import { State } from "../../ui/state.tsx";
import { type ConsumerGroup, describeStopped } from "./groups.ts";
import { type Progress, progressOf, wholeOf } from "./progress.ts";

export interface ConsumerTableProps {
  readonly groups: readonly ConsumerGroup[];
  readonly chosen: string | null;
  readonly live: LiveState;
}

const HEADS = ["Position", "Behind", "Lag", "Rate", "ETA", "Parked"];

/** A row for each consumer, and one for each partition of those that are opened. */
export function ConsumerTable({ groups, chosen, live }: ConsumerTableProps) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Consumer</th>
          <th scope="col">State</th>
          {HEADS.map((head) => (
            <th key={head} scope="col" className="num">
              {head}
            </th>
          ))}
          <th scope="col">Worker</th>
        </tr>
      </thead>
      {groups.map((group) =>
        group.partitions.length === 1 ? (
          <tbody key={group.name}>
            <ConsumerRow
              consumer={group.whole}
              isChosen={group.name === chosen}
              progress={progressIn(live, group.whole)}
            />
          </tbody>
        ) : (
          <GroupRows key={group.name} group={group} chosen={chosen} live={live} />
        ),
      )}
    </table>
  );
}

const progressIn = (live: LiveState, consumer: Consumer): Progress =>
  progressOf(consumer, { own: consumerRate(live, consumer.name), appended: appendRate(live) });

interface GroupRowsProps extends Omit<ConsumerTableProps, "groups"> {
  readonly group: ConsumerGroup;
}

function GroupRows({ group: { name, partitions, whole }, chosen, live }: GroupRowsProps) {
  const isInside = chosen !== null && chosen !== name && wholeOf(chosen) === name;
  const [isOpen, setOpen] = useState(isInside);
  const progresses = partitions.map((one) => progressIn(live, one));
  const rates = partitions.map((one) => consumerRate(live, one.name));
  const sum = rates.reduce<number>((all, rate) => all + (rate ?? 0), 0);
  const isKnown = rates.some((rate) => rate !== undefined);
  const worst = progresses.toSorted((a, b) => b.etaSeconds - a.etaSeconds)[0];
  const workers = new Set(partitions.flatMap(({ workerId }) => workerId ?? []));
  return (
    <tbody>
      <ConsumerRow
        consumer={whole}
        isChosen={name === chosen}
        progress={{
          rate: isKnown ? `${formatRate(sum)} per second` : "–",
          eta: worst?.eta ?? "–",
          etaSeconds: worst?.etaSeconds ?? 0,
        }}
        workers={workers.size}
        partitions={partitions}
        isOpen={isOpen}
        onToggle={() => setOpen(!isOpen)}
      />
      {isOpen
        ? partitions.map((one, index) => {
            const progress = progresses[index];
            return progress === undefined ? null : (
              <ConsumerRow
                key={one.name}
                consumer={one}
                isChosen={one.name === chosen}
                isPart
                progress={progress}
              />
            );
          })
        : null}
    </tbody>
  );
}

interface ConsumerRowProps {
  readonly consumer: Consumer;
  readonly isChosen: boolean;
  readonly progress: Progress;
  readonly isPart?: boolean;
  /** Of one that is split: what it is made of, and on how many workers. */
  readonly partitions?: readonly Consumer[];
  readonly workers?: number;
  readonly isOpen?: boolean;
  readonly onToggle?: () => void;
}

function ConsumerRow(props: ConsumerRowProps) {
  const { consumer, isChosen, isPart = false, partitions, progress, workers } = props;
  const { name, state, checkpoint, lag, lagSeconds, workerId, parkedEvents } = consumer;
  return (
    <tr className={isChosen ? "bg-sunken" : ""}>
      <td>
        <span className={`flex flex-wrap items-center gap-x-2 ${isPart ? "pl-4" : ""}`}>
          <Link
            href={`/consumers?name=${encodeURIComponent(name)}`}
            aria-current={isChosen ? "true" : undefined}
            className="font-medium underline"
          >
            {name}
          </Link>
          {partitions === undefined ? null : <Toggle {...props} count={partitions.length} />}
        </span>
      </td>
      <td>
        <State name={state} />
        {partitions === undefined ? null : (
          <p className="text-xs text-muted">{describeStopped(partitions)}</p>
        )}
      </td>
      <td className="num">{formatCount(checkpoint)}</td>
      <td className="num">{formatCount(lag)}</td>
      <td className="num">{lagSeconds === undefined ? "–" : formatSeconds(lagSeconds)}</td>
      <td className="num">{progress.rate}</td>
      <td className="num">{progress.eta}</td>
      <td className="num">
        {parkedEvents === 0 ? "–" : formatCut(parkedEvents, consumer.isParkedCut)}
      </td>
      <td>
        {workerId !== undefined ? (
          <code title={workerId}>{shortId(workerId)}</code>
        ) : workers !== undefined && workers > 0 ? (
          `on ${workers}`
        ) : (
          "–"
        )}
      </td>
    </tr>
  );
}

function Toggle({
  consumer: { name },
  count,
  isOpen = false,
  onToggle,
}: ConsumerRowProps & { count: number }) {
  return (
    <button
      type="button"
      aria-expanded={isOpen}
      aria-label={`Partitions of ${name}`}
      onClick={onToggle}
      className="min-h-6 rounded border border-line px-1.5 text-xs text-muted hover:bg-sunken"
    >
      <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {count} partitions
    </button>
  );
}
