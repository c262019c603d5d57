import { formatMs, formatRate, formatSeconds, formatShort, plural } from "../../format.ts";
import { useNow } from "../../live/hooks.ts";
import type { LiveState } from "../../live/live-state.ts";
import { useSession } from "../../session/session.tsx";
import { Legend, type LegendItem } from "../../ui/legend.tsx";
import { Panel } from "../../ui/panel.tsx";
import { Plot, type Series } from "../../ui/plot.tsx";
import { backlogOf, lastKnown, type OverviewSeries, recentMean, seriesOf } from "./series.ts";

interface PlotPanelProps {
  readonly title: string;
  readonly times: readonly number[];
  readonly until: number;
  readonly series: readonly Series[];
  /** Where each line is now, in its order. */
  readonly values: readonly string[];
  readonly format: (value: number) => string;
  readonly whose: string;
}

function PlotPanel({ title, times, until, series, values, format, whose }: PlotPanelProps) {
  const items: LegendItem[] = series.map(({ label, color }, index) => ({
    label,
    color,
    value: values[index] ?? "",
  }));
  const now = items.map(({ label, value }) => `${label} ${value}`).join(", ");
  return (
    <Panel title={title} aside={<Legend items={items} />}>
      <Plot
        summary={`${title}: ${now}`}
        times={times}
        until={until}
        series={series}
        format={format}
      />
      <p className="mt-1 text-xs text-muted">of {whose}</p>
    </Panel>
  );
}

/** What goes on, from the feed, second by second. */
export function Plots({ live, isOperator }: { live: LiveState; isOperator: boolean }) {
  const now = useNow();
  const { me } = useSession();
  const series = seriesOf(live.seconds, now);
  // The feed tells of the token's tenant only, whoever has it; the cluster is of all of them.
  const shown = { series, until: now, whose: `tenant ${me.tenant}` };
  return (
    <div className="grid gap-4 md:grid-cols-2 2xl:grid-cols-4">
      <Throughput {...shown} />
      <Latency {...shown} />
      <Failures {...shown} />
      {isOperator ? <Backlog live={live} until={now} /> : null}
    </div>
  );
}

interface SeriesProps {
  readonly series: OverviewSeries;
  readonly until: number;
  readonly whose: string;
}

function Throughput({ series, until, whose }: SeriesProps) {
  const { times, completed, enqueued } = series;
  return (
    <PlotPanel
      title="Throughput per second"
      times={times}
      until={until}
      whose={whose}
      series={[
        { label: "completed", color: 1, values: completed, isArea: true },
        { label: "enqueued", color: 2, values: enqueued },
      ]}
      values={[formatRate(recentMean(completed)), formatRate(recentMean(enqueued))]}
      format={formatShort}
    />
  );
}

function Latency({ series, until, whose }: SeriesProps) {
  const { times, runP50, runP95, waitP95 } = series;
  const shown = (value: number | undefined): string =>
    value === undefined ? "–" : formatMs(value);
  return (
    <PlotPanel
      title="Latency"
      times={times}
      until={until}
      whose={whose}
      series={[
        { label: "run p50", color: 1, values: runP50 },
        { label: "run p95", color: 2, values: runP95 },
        { label: "wait p95", color: 3, values: waitP95 },
      ]}
      values={[shown(lastKnown(runP50)), shown(lastKnown(runP95)), shown(lastKnown(waitP95))]}
      format={formatMs}
    />
  );
}

function Failures({ series, until, whose }: SeriesProps) {
  const { times, failed, retried } = series;
  return (
    <PlotPanel
      title="Failures per second"
      times={times}
      until={until}
      whose={whose}
      series={[
        { label: "for good", color: 2, values: failed, isArea: true },
        { label: "tried again", color: 3, values: retried },
      ]}
      values={[formatRate(recentMean(failed)), formatRate(recentMean(retried))]}
      format={formatShort}
    />
  );
}

function Backlog({ live, until }: { live: LiveState; until: number }) {
  const { times, oldest, depth } = backlogOf(live);
  const isKnown = times.length > 0;
  return (
    <PlotPanel
      title="Backlog"
      times={times}
      until={until}
      whose="all tenants"
      series={[{ label: "oldest waits", color: 1, values: oldest, isArea: true }]}
      values={[
        isKnown
          ? `${formatSeconds(oldest.at(-1) ?? 0)}, ${plural(depth.at(-1) ?? 0, "task")} live`
          : "–",
      ]}
      format={formatSeconds}
    />
  );
}
