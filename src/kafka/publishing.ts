import { UnavailableError } from "../base/errors.ts";
import { partitionOf } from "./partitioner.ts";
import type { OutgoingMessage, RefusedMessage } from "./source.ts";

/** Messages of one partition, in order, that are sent as one batch of its log. */
export interface Slice {
  readonly topic: string;
  readonly partition: number;
  readonly messages: readonly OutgoingMessage[];
}

/** What a client does for a publication. */
export interface Transport {
  /** How many partitions each topic has. */
  countPartitions(topics: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /**
   * One request, with at most one slice of each partition. Resolves when all of them are stored,
   * except for those that it gives, with the reason why a broker refuses what is in them. Throws
   * when the fate of any of them is not known.
   */
  send(slices: readonly Slice[]): Promise<ReadonlyMap<Slice, string>>;
}

/** What is left to be sent to a partition. */
interface Line {
  readonly topic: string;
  readonly partition: number;
  readonly messages: OutgoingMessage[];
  /** How many of them are stored or refused. */
  done: number;
  /** How many are tried at once. */
  countMax: number;
}

/** Brokers take a mebibyte in one batch of the log, unless they are told otherwise. */
const SLICE_BYTES = 512 * 1024;
const REQUEST_BYTES = 8 * 1024 * 1024;
const COUNT_MAX = 10_000;
/** What a record has beside key, value and headers, at most. */
const RECORD_BYTES = 32;
const HEADER_BYTES = 10;

/**
 * Sends messages to their partitions: those of one partition in order, in batches that brokers take
 * by default. One that a broker refuses is tried in halves, until what cannot be stored is alone;
 * everything else goes on.
 */
export class Publishing {
  readonly #transport: Transport;
  readonly #messageBytesMax: number;
  #turn = 0;
  #sending: Promise<unknown> = Promise.resolve();

  constructor(transport: Transport, messageBytesMax: number) {
    this.#transport = transport;
    this.#messageBytesMax = messageBytesMax;
  }

  /** Settles when nothing is under way. */
  get idle(): Promise<unknown> {
    return this.#sending;
  }

  /** One call at a time: a second one that overtakes the first would change the order of a key. */
  async publish(messages: readonly OutgoingMessage[]): Promise<readonly RefusedMessage[]> {
    const sent = this.#sending.then(() => this.#publish(messages));
    this.#sending = sent.catch(() => {});
    return await sent;
  }

  async #publish(messages: readonly OutgoingMessage[]): Promise<readonly RefusedMessage[]> {
    const refused: RefusedMessage[] = [];
    const fit: OutgoingMessage[] = [];
    for (const message of messages) {
      const bytes = sizeOf(message);
      if (bytes <= this.#messageBytesMax) fit.push(message);
      else refused.push({ message, reason: tooLarge(bytes, this.#messageBytesMax) });
    }
    if (fit.length === 0) return refused;
    const topics = [...new Set(fit.map(({ topic }) => topic))];
    const lines = this.#place(fit, await this.#transport.countPartitions(topics));
    for (let left = lines; left.length > 0; left = left.filter(isLeft)) {
      const slices = cut(left);
      const reasons = await this.#transport.send([...slices.values()]);
      for (const [line, slice] of slices) settle(line, slice, reasons.get(slice), refused);
    }
    return refused;
  }

  #place(messages: readonly OutgoingMessage[], counts: ReadonlyMap<string, number>): Line[] {
    const lines = new Map<string, Line>();
    for (const message of messages) {
      const { topic, key } = message;
      const count = counts.get(topic) ?? 0;
      if (count < 1) throw new UnavailableError(`Kafka: publish: topic ${topic} does not exist`);
      const partition = key === undefined ? this.#turn++ % count : partitionOf(key, count);
      const place = `${partition} ${topic}`;
      const line = lines.get(place);
      if (line !== undefined) line.messages.push(message);
      else
        lines.set(place, { topic, partition, messages: [message], done: 0, countMax: COUNT_MAX });
    }
    this.#turn %= 0x7fffffff;
    return [...lines.values()];
  }
}

const isLeft = ({ done, messages }: Line): boolean => done < messages.length;

/** What is sent next of each line, as far as it goes into one request. */
function cut(lines: readonly Line[]): Map<Line, Slice> {
  const slices = new Map<Line, Slice>();
  let requestBytes = 0;
  for (const line of lines) {
    if (requestBytes >= REQUEST_BYTES) break;
    let bytes = 0;
    let end = line.done;
    for (; end < line.messages.length && end - line.done < line.countMax; end += 1) {
      const message = line.messages[end];
      const size = message === undefined ? 0 : sizeOf(message);
      if (end > line.done && bytes + size > SLICE_BYTES) break;
      bytes += size;
    }
    requestBytes += bytes;
    const { topic, partition } = line;
    slices.set(line, { topic, partition, messages: line.messages.slice(line.done, end) });
  }
  return slices;
}

function settle(
  line: Line,
  { messages }: Slice,
  reason: string | undefined,
  refused: RefusedMessage[],
): void {
  const [first] = messages;
  if (reason !== undefined && messages.length > 1) {
    line.countMax = Math.ceil(messages.length / 2);
    return;
  }
  if (reason !== undefined && first !== undefined) refused.push({ message: first, reason });
  line.done += messages.length;
  line.countMax = Math.min(COUNT_MAX, line.countMax * 2);
}

/** As it is in a batch of the log, or a little more. */
function sizeOf({ key, value, headers }: OutgoingMessage): number {
  let bytes = RECORD_BYTES + (key?.length ?? 0) + (value?.length ?? 0);
  for (const { name, value: content } of headers) {
    bytes += HEADER_BYTES + Buffer.byteLength(name) + content.length;
  }
  return bytes;
}

const tooLarge = (bytes: number, max: number): string =>
  `the message has ${bytes} bytes, over the ${max} of messageBytesMax`;
