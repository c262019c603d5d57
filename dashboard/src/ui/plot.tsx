import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useShownTheme } from "./theme.ts";

export interface Series {
  readonly label: string;
  readonly color: 1 | 2 | 3;
  readonly values: readonly (number | null)[];
  /** Whether the space below is filled. */
  readonly isArea?: boolean;
}

export interface PlotProps {
  /** For who cannot see it: what it shows, with the figures of now. */
  readonly summary: string;
  /** Seconds since 1970, rising. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  /** What is shown: from so many seconds before this one up to it. */
  readonly until: number;
  readonly format: (value: number) => string;
}

const HEIGHT = 150;
const AXIS_PX = 52;
/** Half of the last time stands beyond the end of the lines. */
const LAST_TIME_PX = 28;
const SHOWN_SECONDS = 300;

/** Lines over the last minutes. It is drawn anew only when the theme or its lines change. */
export function Plot({ summary, times, series, until, format }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const theme = useShownTheme();
  const data = [times, ...series.map(({ values }) => values)] as uPlot.AlignedData;
  const latest = useRef({ data, series, until, format });
  latest.current = { data, series, until, format };
  const names = series.map(({ label }) => label).join();
  // Colours and lines make another plot.
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const { series: lines, data: first } = latest.current;
    const options = optionsOf(lines, {
      format: (value) => latest.current.format(value),
      until: () => latest.current.until,
    });
    plot.current = new uPlot({ ...options, width: element.clientWidth || 300 }, first, element);
    const observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry?.contentRect.width ?? 0);
      if (width > 0) plot.current?.setSize({ width, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [theme, names]);
  // With every second, too: time goes on when nothing happens.
  useEffect(() => plot.current?.setData(data));
  return (
    <div
      ref={place}
      role="img"
      aria-label={summary}
      className="h-[150px] min-w-0 overflow-hidden"
    />
  );
}

interface Scale {
  readonly format: (value: number) => string;
  readonly until: () => number;
}

function optionsOf(
  lines: readonly Series[],
  { format, until }: Scale,
): Omit<uPlot.Options, "width"> {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    font: `12px ${getComputedStyle(document.body).fontFamily}`,
  };
  return {
    height: HEIGHT,
    padding: [8, LAST_TIME_PX, 0, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: {
      x: { range: () => [until() - SHOWN_SECONDS, until()] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      { ...axis, size: 26, space: 80, values: "{HH}:{mm}:{ss}" },
      { ...axis, size: AXIS_PX, space: 34, values: (_, ticks) => ticks.map(format) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(`--series-${line.color}`),
        width: 1.5,
        ...(line.isArea === true ? { fill: `${color(`--series-${line.color}`)}22` } : {}),
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}
