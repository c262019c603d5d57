import { messageOf, UnavailableError } from "../base/errors.ts";

const LENGTH_MAX = 500;

/** What a Kafka client says went wrong: the innermost errors, each once. */
export function describeError(error: unknown): string {
  const messages = new Set<string>();
  const visit = (one: unknown, depth: number): void => {
    if (one instanceof AggregateError && one.errors.length > 0 && depth < 5) {
      for (const inner of one.errors) visit(inner, depth + 1);
    } else if (one instanceof Error && one.cause instanceof Error && depth < 5) {
      messages.add(`${messageOf(one)} (${messageOf(one.cause)})`);
    } else messages.add(messageOf(one));
  };
  visit(error, 0);
  return [...messages].join("; ").slice(0, LENGTH_MAX);
}

/** How long each part of a goodbye may take: a broker that hangs never says it back. */
export const GOODBYE_MS = 1_000;

/** For goodbyes: whether it went well, and nothing is thrown. */
export async function quietly(work: () => unknown): Promise<boolean> {
  try {
    await work();
    return true;
  } catch {
    return false;
  }
}

/** What brokers say of a message that they will never take, whoever sends it how often. */
const REFUSALS: ReadonlyMap<number, string> = new Map([
  [10, "MESSAGE_TOO_LARGE: it has more bytes than max.message.bytes of the topic allows"],
  [18, "RECORD_LIST_TOO_LARGE: it does not fit into a segment of the topic"],
  [87, "INVALID_RECORD: the topic does not take it"],
]);

/** Whether this is about what was sent, and not about who could not store it now. */
export const isRefusalCode = (code: number): boolean => REFUSALS.has(code);

export function refusalOf(code: number, more: string | null): string {
  const text = REFUSALS.get(code) ?? String(code);
  return (more === null || more === "" ? text : `${text} (${more})`).slice(0, LENGTH_MAX);
}

/** What cannot be done now may be done later. */
export const unavailable = (doing: string, error: unknown): UnavailableError =>
  error instanceof UnavailableError
    ? error
    : new UnavailableError(`Kafka: ${doing}: ${describeError(error)}`, { cause: error });
