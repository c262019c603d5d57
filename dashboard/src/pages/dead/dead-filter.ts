/** Which dead letters are looked at, as it is in the address. */
export interface DeadFilter {
  readonly queue?: string;
  readonly cause?: string;
  readonly kind?: string;
  readonly partitionKey?: string;
}

export const CAUSES = [
  ["attempts_exhausted", "out of attempts"],
  ["worker_lost", "its workers were lost with it"],
  ["invalid_payload", "its payload is not valid"],
] as const;

const PARAMS = [
  ["queue", "queue"],
  ["cause", "cause"],
  ["kind", "kind"],
  ["partitionKey", "key"],
] as const;

export function readDeadFilter(search: string): DeadFilter {
  const given = new URLSearchParams(search);
  const found = PARAMS.map(([name, param]) => [name, given.get(param) ?? ""] as const);
  return Object.fromEntries(found.filter(([, value]) => value !== ""));
}

/** As the part of an address behind the path; "" when nothing is filtered. */
export function writeDeadFilter(filter: DeadFilter): string {
  const parts = PARAMS.flatMap(([name, param]) => (filter[name] ? [[param, filter[name]]] : []));
  return parts.length === 0 ? "" : `?${new URLSearchParams(parts)}`;
}

/** What is set, for a call. */
export const givenOf = (filter: DeadFilter): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ""));

/** In words. */
export function describeFilter(filter: DeadFilter): string {
  const { queue, cause, kind, partitionKey } = filter;
  const parts = [
    ...(queue ? [`of queue ${queue}`] : []),
    ...(cause ? [CAUSES.find(([name]) => name === cause)?.[1] ?? cause] : []),
    ...(kind ? [`of kind ${kind}`] : []),
    ...(partitionKey ? [`of key ${partitionKey}`] : []),
  ];
  return parts.length === 0 ? "All that are there now." : `Those ${parts.join(", ")}.`;
}
