import { messageOf } from "../base/errors.ts";

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

/** For goodbyes: whether it went well, and nothing is thrown. */
export async function quietly(work: () => unknown): Promise<boolean> {
  try {
    await work();
    return true;
  } catch {
    return false;
  }
}
