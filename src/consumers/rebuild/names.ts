import { derivedName } from "../../base/identifier.ts";
import type { Names } from "../../db/names.ts";

/** A rebuild is a consumer under the projection's name with this behind it. */
export const REBUILD_SUFFIX = "~rebuild";
/** What was parked for tables that were swapped out is kept under this name. */
const BEFORE_SUFFIX = "~before";

export const rebuildName = (consumer: string): string => `${consumer}${REBUILD_SUFFIX}`;

/** A worker that announces it can run every partition of the consumer's rebuild. */
export const rebuildCapability = (consumer: string): string => `${rebuildName(consumer)}/*`;

/** The consumer that this is a rebuild, or a partition of a rebuild, of. */
export function rebuiltConsumer(name: string): string | undefined {
  const [, consumer] = /^(.+)~rebuild(?:\/\d+)?$/s.exec(name) ?? [];
  return consumer;
}

/** Where the parked streams of a partition are while its old tables are kept. */
export function beforeName(consumer: string, partition: string): string {
  return `${consumer}${BEFORE_SUFFIX}${partition.slice(consumer.length)}`;
}

/** Of the copies that a rebuild fills. */
export const shadowSchema = (names: Names, id: string): string =>
  derivedName("", names.schema, `_rebuild_${id}`);

/** Of the tables that were swapped out. */
export const beforeSchema = (names: Names, id: string): string =>
  derivedName("", names.schema, `_before_${id}`);
