const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const instants = new Intl.DateTimeFormat("en", {
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
});

/** 9182 as 9,182. Positions may be larger than a number. */
export const formatCount = (count: number | bigint | string): string =>
  counts.format(typeof count === "string" ? BigInt(count) : count);

/** Of what is counted up to a bound only. */
export const formatCut = (count: number, isCut = false): string =>
  `${formatCount(count)}${isCut ? " or more" : ""}`;

/** 12,345 as 12.3K, where there is little room. */
export const formatShort = (count: number): string => short.format(count);

/** Per second: small ones with a fraction, because 0 would be wrong. */
export function formatRate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 10) return perSecond.toFixed(perSecond < 1 ? 2 : 1);
  return counts.format(perSecond);
}

/** As a person says it: 0.4 s, 12 s, 3 min, 5 h, 2 d. */
export function formatSeconds(seconds: number): string {
  if (seconds < 0.0995) return `${Number((seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (seconds < 5_940) return `${Math.round(seconds / 60)} min`;
  if (seconds < 171_000) return `${Math.round(seconds / 3_600)} h`;
  return `${counts.format(Math.round(seconds / 86_400))} d`;
}

export const formatMs = (ms: number): string => formatSeconds(ms / 1000);

/** In the zone of who looks, which it names. */
export const formatInstant = (at: string | number): string => instants.format(new Date(at));

/** Instants in a text of the server, as those around it are shown. */
export const localTimes = (text: string): string =>
  text.replaceAll(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (at) => formatInstant(at));

/** 12 s ago, in 3 min. */
export function formatDistance(at: string | number, nowMs: number): string {
  const seconds = (nowMs - new Date(at).getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const rounded = formatSeconds(Math.max(1, Math.floor(Math.abs(seconds))));
  return seconds > 0 ? `${rounded.replace(".0 ", " ")} ago` : `in ${rounded.replace(".0 ", " ")}`;
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${units[power]}`;
}

/** Enough of a worker's id to tell workers apart, as the command line shortens it. */
export const shortId = (id: string): string => id.slice(0, 8);

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${formatCount(count)} ${count === 1 ? one : many}`;

/** "10,000 or more events", of what is counted up to a bound only. */
export const pluralCut = (count: number, isCut: boolean, one: string): string =>
  `${formatCut(count, isCut)} ${count === 1 ? one : `${one}s`}`;
