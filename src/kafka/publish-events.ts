import { InvalidInputError } from "../base/errors.ts";
import { refuseUnknown } from "../base/options.ts";
import { readTrace } from "../base/trace-context.ts";
import { storeOf } from "../consumers/batch-tx.ts";
import {
  type Consumer,
  type ConsumerOptions,
  type ConsumerTx,
  consumer,
} from "../consumers/consumer.ts";
import type { PersistedEvent } from "../events/event.ts";
import { header, isTopic } from "./headers.ts";
import { requireFunctions, requireTopic } from "./publish-tasks.ts";
import { keep } from "./refused-messages.ts";
import type { KafkaSink, OutgoingMessage } from "./source.ts";

export interface PublishEventsOptions
  extends Pick<ConsumerOptions, "aggregateTypes" | "eventTypes" | "partitions" | "onFailure"> {
  /** Where to: a topic, or a function that names one for each event, or none. */
  readonly topic: string | ((event: PersistedEvent) => string | undefined);
  /** Events of one key are in order. Defaults to the id of the stream. */
  readonly key?: (event: PersistedEvent) => string;
  /** What is sent. Defaults to JSON with everything about the event. */
  readonly value?: (event: PersistedEvent) => string | Uint8Array;
}

const KNOWN = ["topic", "key", "value", "aggregateTypes", "eventTypes", "partitions", "onFailure"];

/**
 * A consumer that publishes events to Kafka, at least once and in order per key. A batch is
 * published together and acknowledged by all replicas in sync before its checkpoint is saved: a
 * process that dies between the two publishes it again, under the same event ids. A broker that
 * cannot be reached is waited for, and counts against no event. A message that no broker takes is
 * kept in the transaction that saves the checkpoint (`RefusedMessages`), and the others go on.
 */
export function publishEvents(
  name: string,
  sink: KafkaSink,
  options: PublishEventsOptions,
): Consumer {
  refuseUnknown(`publishEvents "${name}"`, options, KNOWN);
  const { topic, key, value, ...rest } = options;
  requireTopic(topic);
  requireFunctions({ key, value });
  // By the transaction of their batch: what a batch gathered that was undone goes with it.
  const gathered = new WeakMap<ConsumerTx, OutgoingMessage[]>();
  return consumer(name, {
    ...rest,
    handle(event, { tx }) {
      const message = toMessage(event, options);
      if (message === undefined) return;
      const others = gathered.get(tx);
      if (others === undefined) gathered.set(tx, [message]);
      else others.push(message);
    },
    async beforeCommit({ tx }) {
      const messages = gathered.get(tx);
      if (messages !== undefined) await keep(storeOf(tx), name, await sink.publish(messages));
    },
  });
}

function toMessage(
  event: PersistedEvent,
  { topic, key, value }: PublishEventsOptions,
): OutgoingMessage | undefined {
  const name = typeof topic === "string" ? topic : topic(event);
  if (name === undefined) return undefined;
  if (!isTopic(name)) throw new InvalidInputError(`${JSON.stringify(name)} is not a topic`);
  return {
    topic: name,
    key: Buffer.from(key === undefined ? event.streamId : key(event)),
    value: Buffer.from(value === undefined ? describe(event) : value(event)),
    headers: [
      header("tidemill-event-id", event.id),
      header("tidemill-event-type", event.type),
      header("tidemill-event-position", String(event.position)),
      ...traceHeaders(event),
    ],
  };
}

/** Of an event that says so: the trace is in its metadata, or its trace id is one as it stands. */
function traceHeaders({ traceId, metadata = {} }: PersistedEvent): OutgoingMessage["headers"] {
  const { traceparent, tracestate } = metadata;
  const said = readTrace(traceparent, tracestate);
  const { traceParent, traceState } =
    said.traceParent === undefined ? readTrace(traceId, undefined) : said;
  return [
    ...(traceParent === undefined ? [] : [header("traceparent", traceParent)]),
    ...(traceState === undefined ? [] : [header("tracestate", traceState)]),
  ];
}

/** The payload as it was written, if it is JSON. */
function describe(event: PersistedEvent): string {
  const { metadata, traceId, correlationId, causationId } = event;
  const facts = JSON.stringify({
    id: event.id,
    position: String(event.position),
    stream: event.stream,
    streamVersion: String(event.streamVersion),
    type: event.type,
    version: event.version,
    createdAt: event.createdAt.toISOString(),
    ...(metadata === undefined ? {} : { metadata }),
    ...(traceId === undefined ? {} : { traceId }),
    ...(correlationId === undefined ? {} : { correlationId }),
    ...(causationId === undefined ? {} : { causationId }),
  });
  return `${facts.slice(0, -1)},${payloadOf(event)}}`;
}

function payloadOf({ payload }: PersistedEvent): string {
  const text = payload.toString();
  try {
    JSON.parse(text);
    return `"data":${text}`;
  } catch {
    return `"dataBase64":"${payload.toString("base64")}"`;
  }
}
