import { Link, useSearch } from "wouter";
import type { Consumer } from "../../api/types.ts";
import { formatCount, plural } from "../../format.ts";
import { useLive } from "../../live/hooks.ts";
import { Page } from "../../ui/page.tsx";
import { Empty, Panel, Scroller } from "../../ui/panel.tsx";
import { StaleNote } from "../../ui/stale-note.tsx";
import { ConsumerPanel } from "./consumer-panel.tsx";
import { ConsumerTable } from "./consumer-table.tsx";
import { CrossedGaps } from "./crossed-gaps.tsx";
import { type ConsumerGroup, groupsOf } from "./groups.ts";
import { OpenGaps } from "./open-gaps.tsx";
import { isRebuild, wholeOf } from "./progress.ts";
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
  const groups = groupsOf(consumers);
  const group = groups.find(({ name }) => name === chosen);
  const consumer = consumers.find(({ name }) => name === chosen);
  return (
    <Page title="Consumers">
      <StaleNote />
      <Panel
        title={plural(groups.length, "consumer")}
        flush
        aside={<p className="text-xs text-muted">The log ends at {formatCount(latestPosition)}</p>}
      >
        {groups.length === 0 ? (
          <Empty>No consumer was registered yet: a worker registers those it has.</Empty>
        ) : (
          <Scroller label="Consumers">
            <ConsumerTable groups={groups} chosen={chosen} live={live} />
          </Scroller>
        )}
      </Panel>
      {consumer !== undefined ? (
        <Chosen consumer={consumer} />
      ) : group === undefined ? null : (
        <ChosenGroup group={group} />
      )}
      <OpenGaps gaps={openGaps} />
    </Page>
  );
}

/** One that is not split, or one partition. */
function Chosen({ consumer }: { consumer: Consumer }) {
  const { name } = consumer;
  return (
    <>
      <ConsumerPanel key={name} consumer={consumer} />
      <RebuildOf name={wholeOf(name)} />
      <CrossedGaps key={`gaps of ${name}`} name={name} />
    </>
  );
}

function ChosenGroup({ group: { name, partitions, whole } }: { group: ConsumerGroup }) {
  const stopped = partitions.filter(({ state }) => state === "quarantined");
  return (
    <>
      <ConsumerPanel key={name} consumer={whole} partitions={partitions.length}>
        {stopped.map((one) => (
          <p key={one.name} className="mt-3 text-bad">
            {describeStop(one)}{" "}
            <Link
              href={`/consumers?name=${encodeURIComponent(one.name)}`}
              className="text-ink underline"
            >
              See the event, or skip it
            </Link>
          </p>
        ))}
      </ConsumerPanel>
      <RebuildOf name={name} />
    </>
  );
}

function describeStop({ name, checkpoint, poison }: Consumer): string {
  const position = formatCount(poison?.position ?? checkpoint);
  return `${name} stopped at position ${position}: ${poison?.error ?? "no error was recorded"}.`;
}

const RebuildOf = ({ name }: { name: string }) =>
  isRebuild(name) ? null : <RebuildPanel key={`rebuild of ${name}`} name={name} />;
