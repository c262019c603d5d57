import { InvalidInputError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import type { Database, Queryable } from "../db/database.ts";
import type { Tidemill } from "../worker/tidemill.ts";
import { headersJson, readHeaders } from "./headers.ts";
import type { KafkaHeader, KafkaSink, RefusedMessage } from "./source.ts";
import { keepRefused, listRefused, type RefusedRow, takeRefused } from "./sql/refused-messages.ts";

/** A message that was to be published and that no broker takes. */
export interface KeptMessage {
  readonly id: string;
  /** Name of the publication or of the consumer. */
  readonly publisher: string;
  /** Empty when the function that names it failed. */
  readonly topic: string;
  readonly reason: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer | undefined;
  readonly headers: readonly KafkaHeader[];
  readonly createdAt: Date;
}

export interface ListRefusedOptions {
  /** Of this publication or consumer. Defaults to all. */
  readonly publisher?: string;
  /** Those behind this id. Defaults to the first. */
  readonly after?: string;
  /** Defaults to 100. */
  readonly limit?: number;
}

const LIST_MAX = 1_000;
const TAKE_MAX = 1_000;

/**
 * Messages that were refused, which are kept until a person decides. Each is kept in the
 * transaction that says that it is done, and so exactly once.
 */
export class RefusedMessages {
  readonly #db: Database;
  readonly #sink: KafkaSink;

  constructor(mill: Tidemill, sink: KafkaSink) {
    this.#db = mill.engine.db;
    this.#sink = sink;
  }

  /** The oldest first. */
  async list(options: ListRefusedOptions = {}): Promise<KeptMessage[]> {
    refuseUnknown("list", options, ["publisher", "after", "limit"]);
    const { publisher, after = "0", limit = 100 } = options;
    requireIds([after]);
    requireNumber("limit", limit, { min: 1, max: LIST_MAX, integer: true });
    const rows = await listRefused(this.#db, publisher, after, limit);
    return rows.map(toKept);
  }

  /**
   * Publishes them, after whatever was wrong was mended, as they are or to another topic: all of
   * them are published and gone from the table, or none is gone. Newer ones of their keys may have
   * been published before them.
   */
  async republish(
    ids: readonly string[],
    { topic }: { readonly topic?: string } = {},
  ): Promise<void> {
    requireIds(ids);
    await this.#db.transaction(async (tx) => {
      const rows = await takeRefused(tx, ids);
      const found = new Set(rows.map(({ id }) => BigInt(id)));
      for (const id of new Set(ids.map(BigInt))) {
        if (!found.has(id)) throw new NotFoundError(`there is no refused message ${id}`);
      }
      const kept = rows.map(toKept).toSorted((a, b) => Number(BigInt(a.id) - BigInt(b.id)));
      const messages = kept.map((one) => ({ ...one, topic: topic ?? one.topic }));
      const [first] = await this.#sink.publish(messages);
      if (first === undefined) return;
      throw new InvalidInputError(`a message is still refused: ${first.reason}`);
    });
  }

  /** Removes them for good; those that are not there are no failure. Gives how many were. */
  async purge(ids: readonly string[]): Promise<number> {
    requireIds(ids);
    return (await takeRefused(this.#db, ids)).length;
  }
}

/** In the transaction that says that they are done. */
export async function keep(
  tx: Queryable,
  publisher: string,
  refused: readonly RefusedMessage[],
): Promise<void> {
  if (refused.length === 0) return;
  const rows = refused.map(({ message, reason }) => ({
    topic: message.topic,
    reason,
    key: message.key,
    value: message.value,
    headers: headersJson(message.headers),
  }));
  await keepRefused(tx, publisher, rows);
}

function requireIds(ids: readonly string[]): void {
  if (!Array.isArray(ids) || ids.length > TAKE_MAX) {
    throw new InvalidInputError(`give a list of at most ${TAKE_MAX} ids`);
  }
  for (const id of ids as readonly unknown[]) {
    if (typeof id === "string" && /^\d{1,18}$/.test(id)) continue;
    throw new InvalidInputError(`${JSON.stringify(id)} is not the id of a refused message`);
  }
}

function toKept(row: RefusedRow): KeptMessage {
  return {
    id: row.id,
    publisher: row.publisher,
    topic: row.topic,
    reason: row.reason,
    key: row.key ?? undefined,
    value: row.value ?? undefined,
    headers: readHeaders(row.headers),
    createdAt: row.created_at,
  };
}
