import { Link, useSearch } from "wouter";
import type { Consumer } from "../../api/types.ts";
import { formatCount, formatCut, formatSeconds, plural, shortId } from "../../format.ts";
import { useLive } from "../../live/hooks.ts";
import { consumerRate, type LiveState } from "../../live/live-state.ts";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { State } from "../../ui/state.tsx";
import { ConsumerPanel } from "./consumer-panel.tsx";
import { CrossedGaps } from "./crossed-gaps.tsx";
import { OpenGaps } from "./open-gaps.tsx";
import { isRebuild, progressOf, wholeOf } from "./progress.ts";
import { RebuildPanel } from "./rebuild-panel.tsx";

export function ConsumersPage() {
  const live = useLive();
  const chosen = new URLSearchParams(useSearch()).get("name");
  const { status } = live;
  if (status === undefined) {
    return (
      <Page title="Consumers">
        <Empty>Loading…</Empty>
      </Page>
    );
  }
  const { consumers, latestPosition, openGaps } = status;
  const consumer = consumers.find(({ name }) => name === chosen);
  return (
    <Page title="Consumers">
      <Panel
        title={plural(consumers.length, "consumer")}
        flush
        aside={<p className="text-xs text-muted">The log ends at {formatCount(latestPosition)}</p>}
      >
        {consumers.length === 0 ? (
          <Empty>No consumer was registered yet: a worker registers those it has.</Empty>
        ) : (
          <Scroller label="Consumers">
            <ConsumerTable consumers={consumers} chosen={chosen} live={live} />
          </Scroller>
        )}
      </Panel>
      {consumer === undefined ? null : (
        <>
          <ConsumerPanel key={consumer.name} consumer={consumer} />
          {isRebuild(consumer.name) ? null : (
            <RebuildPanel
              key={`rebuild of ${wholeOf(consumer.name)}`}
              name={wholeOf(consumer.name)}
            />
          )}
          <CrossedGaps key={`gaps of ${consumer.name}`} name={consumer.name} />
        </>
      )}
      <OpenGaps gaps={openGaps} />
    </Page>
  );
}

interface ConsumerTableProps {
  readonly consumers: readonly Consumer[];
  readonly chosen: string | null;
  readonly live: LiveState;
}

function ConsumerTable({ consumers, chosen, live }: ConsumerTableProps) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Consumer</th>
          <th scope="col">State</th>
          <th scope="col" className="num">
            Position
          </th>
          <th scope="col" className="num">
            Behind
          </th>
          <th scope="col" className="num">
            Late by
          </th>
          <th scope="col" className="num">
            Rate
          </th>
          <th scope="col" className="num">
            At the end in
          </th>
          <th scope="col" className="num">
            Parked
          </th>
          <th scope="col">Worker</th>
        </tr>
      </thead>
      <tbody>
        {consumers.map((consumer) => (
          <ConsumerRow
            key={consumer.name}
            consumer={consumer}
            isChosen={consumer.name === chosen}
            perSecond={consumerRate(live, consumer.name)}
          />
        ))}
      </tbody>
    </table>
  );
}

interface ConsumerRowProps {
  readonly consumer: Consumer;
  readonly isChosen: boolean;
  readonly perSecond: number | undefined;
}

function ConsumerRow({ consumer, isChosen, perSecond }: ConsumerRowProps) {
  const { name, state, checkpoint, lag, lagSeconds, workerId } = consumer;
  const { parkedEvents, isParkedCut } = consumer;
  const { rate, eta } = progressOf(consumer, perSecond);
  return (
    <tr className={isChosen ? "bg-sunken" : ""}>
      <td>
        <Link
          href={`/consumers?name=${encodeURIComponent(name)}`}
          aria-current={isChosen ? "true" : undefined}
          className="font-medium underline"
        >
          {name}
        </Link>
      </td>
      <td>
        <State name={state} />
      </td>
      <td className="num">{formatCount(checkpoint)}</td>
      <td className="num">{formatCount(lag)}</td>
      <td className="num">{lagSeconds === undefined ? "–" : formatSeconds(lagSeconds)}</td>
      <td className="num">{rate}</td>
      <td className="num">{eta}</td>
      <td className="num">{parkedEvents === 0 ? "–" : formatCut(parkedEvents, isParkedCut)}</td>
      <td>{workerId === undefined ? "–" : <code title={workerId}>{shortId(workerId)}</code>}</td>
    </tr>
  );
}
