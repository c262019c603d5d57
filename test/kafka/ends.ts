import type { KafkaMessage } from "../../src/kafka/index.ts";
import { headersOf } from "./topics.ts";

/** The end of a task that never was, by nothing but SQL. */
export const endBySql = (id: number, key = "one"): string =>
  `INSERT INTO tidemill.task_history
          (id, created_at, run_at, lease_generation, attempt, max_attempts, priority, state, tenant,
           queue, partition_key, payload)
   VALUES (${id}, NOW(), NOW(), 1, 1, 5, 5, 'completed', 'default', 'sql', '${key}', 'null')`;

export const idOf = (message: KafkaMessage): number =>
  Number(headersOf(message)["tidemill-task-id"]);

/** By key, in the order in which they were first seen: they come at least once. */
export function firstAppearances(
  messages: readonly KafkaMessage[],
  numberOf: (message: KafkaMessage) => number = idOf,
): Map<string, number[]> {
  const seen = new Set<number>();
  const byKey = new Map<string, number[]>();
  for (const message of messages) {
    const number = numberOf(message);
    if (seen.has(number)) continue;
    seen.add(number);
    const key = String(message.key);
    byKey.set(key, [...(byKey.get(key) ?? []), number]);
  }
  return byKey;
}
