import type { BaseOptions, Producer } from "@platformatic/kafka";
import { isRefusalCode, quietly, refusalOf, unavailable } from "../client-errors.ts";
import type { Slice, Transport } from "../publishing.ts";

type Package = typeof import("@platformatic/kafka");

const ALL_REPLICAS = -1;
/** Numbers of messages have 31 bits, and the client does not begin again. */
const MESSAGES_MAX = 1_000_000_000;

/**
 * Sends with one producer of `@platformatic/kafka` at a time. What it sends again by itself brokers
 * recognise by its numbers. It is given up after any failure: it does not count what was stored
 * beside what failed, and a broker would take other messages with the same numbers for the old ones
 * and drop them.
 */
export class PlatformaticTransport implements Transport {
  readonly #package: Package;
  readonly #options: BaseOptions & { readonly idempotent: boolean };
  readonly #goodbyes = new Set<Promise<unknown>>();
  #producer: Producer | undefined;
  #sent = 0;

  constructor(library: Package, options: BaseOptions & { readonly idempotent: boolean }) {
    this.#package = library;
    this.#options = options;
  }

  async countPartitions(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    try {
      const { topics: found } = await this.#open().metadata({ topics: [...topics] });
      return new Map([...found].map(([topic, { partitionsCount }]) => [topic, partitionsCount]));
    } catch (error) {
      this.#giveUp();
      throw unavailable("publish", error);
    }
  }

  async send(slices: readonly Slice[]): Promise<ReadonlyMap<Slice, string>> {
    try {
      const messages = slices.flatMap(toMessages);
      this.#sent += messages.length;
      await this.#open().send({ acks: ALL_REPLICAS, messages });
      if (this.#sent > MESSAGES_MAX) this.#giveUp();
      return new Map();
    } catch (error) {
      this.#giveUp();
      const fates = fatesOf(error);
      const refused = new Map<Slice, string>();
      for (const slice of slices) {
        const fate = fates.get(`${slice.partition} ${slice.topic}`);
        if (fate === undefined) throw unavailable("publish", error);
        if (fate !== "stored") refused.set(slice, fate.refusal);
      }
      return refused;
    }
  }

  async close(): Promise<void> {
    this.#giveUp();
    await Promise.all(this.#goodbyes);
  }

  #open(): Producer {
    if (this.#producer === undefined) {
      this.#producer = new this.#package.Producer({ ...this.#options });
      this.#producer.on("error", () => {}); // Whoever sends is told.
      this.#sent = 0;
    }
    return this.#producer;
  }

  #giveUp(): void {
    const producer = this.#producer;
    if (producer === undefined) return;
    this.#producer = undefined;
    const goodbye = quietly(() => producer.close()).finally(() => this.#goodbyes.delete(goodbye));
    this.#goodbyes.add(goodbye);
  }
}

type Messages = Parameters<Producer["send"]>[0]["messages"];

const toMessages = ({ topic, partition, messages }: Slice): Messages =>
  messages.map(({ key, value, headers }) => ({
    topic,
    partition,
    ...(key === undefined ? {} : { key }),
    ...(value === undefined ? {} : { value }),
    headers: new Map(headers.map((one) => [Buffer.from(one.name), one.value])),
  }));

type Fate = "stored" | { readonly refusal: string };

/** What a broker said of each partition, or what the client made of it. */
interface Told {
  readonly produced?: { readonly offsets?: readonly { topic: string; partition: number }[] };
  readonly response?: {
    readonly responses?: readonly {
      readonly name: string;
      readonly partitionResponses: readonly {
        readonly index: number;
        readonly errorCode: number;
        readonly errorMessage: string | null;
      }[];
    }[];
  };
}

/**
 * By partition, as far as it is known for sure. The error has one of each broker that was sent to,
 * which after several tries has one of each try: the last one counts.
 */
function fatesOf(error: unknown): Map<string, Fate> {
  const fates = new Map<string, Fate>();
  if (!(error instanceof AggregateError)) return fates;
  for (const { topic, partition } of (error as Told).produced?.offsets ?? []) {
    fates.set(`${partition} ${topic}`, "stored");
  }
  for (const ofBroker of error.errors as readonly unknown[]) {
    for (const { name, partitionResponses } of lastResponse(ofBroker)?.responses ?? []) {
      for (const { index, errorCode, errorMessage } of partitionResponses) {
        const place = `${index} ${name}`;
        if (errorCode === 0) fates.set(place, "stored");
        else if (isRefusalCode(errorCode)) {
          fates.set(place, { refusal: refusalOf(errorCode, errorMessage) });
        }
      }
    }
  }
  return fates;
}

function lastResponse(error: unknown): Told["response"] {
  const { response } = error as Told;
  if (response !== undefined || !(error instanceof AggregateError)) return response;
  return error.errors.length === 0 ? undefined : lastResponse(error.errors.at(-1));
}
