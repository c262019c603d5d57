import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import { JsonText } from "../../../base/json-text.ts";
import { withoutUndefined } from "../../../base/options.ts";
import type { NewEvent, PersistedEvent } from "../../../events/event.ts";
import type { Tidemill } from "../../../worker/tidemill.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { anyJson, bigNumber, bytesOf, instant, name, wholeNumber } from "../schemas.ts";

const TAG = "Events";
const LIMIT = 100;
const EVENTS_MAX = 1_000;

const streamParams = z.strictObject({ type: name, id: name });
const waitFor = z.object({
  "x-wait-for": z
    .string()
    .optional()
    .openapi({ description: "<consumer>@<token>: answered when the consumer has handled it" }),
});

const newEvent = z.strictObject({
  type: name,
  data: anyJson.optional(),
  dataBase64: z.string().optional(),
  version: z.number().int().min(1).optional(),
  id: z.string().optional(),
  metadata: z.record(z.string(), anyJson).optional(),
  traceId: name.optional(),
  correlationId: name.optional(),
  causationId: name.optional(),
});

const appended = z
  .object({
    token: z.string().openapi({ description: "For x-wait-for" }),
    positions: z.array(z.string()),
    fromVersion: z.string(),
    toVersion: z.string(),
  })
  .openapi("Appended");

function toNewEvent(given: z.infer<typeof newEvent>): NewEvent {
  const { data, dataBase64, ...rest } = given;
  const event = withoutUndefined(rest) as NewEvent;
  if (dataBase64 !== undefined) {
    if (data !== undefined) throw new InvalidInputError("give data or dataBase64, not both");
    return { ...event, bytes: bytesOf("dataBase64", dataBase64) };
  }
  // As bytes, which are stored as they are.
  if (data instanceof JsonText) return { ...event, bytes: Buffer.from(data.text) };
  return event;
}

const eventView = z
  .object({
    position: z.string(),
    stream: z.object({ type: z.string(), id: z.string() }),
    streamVersion: z.string(),
    id: z.string(),
    type: z.string(),
    version: z.number().int(),
    data: anyJson.optional(),
    dataBase64: z.string().optional(),
    metadata: z.record(z.string(), anyJson).optional(),
    traceId: z.string().optional(),
    correlationId: z.string().optional(),
    causationId: z.string().optional(),
    createdAt: instant,
  })
  .openapi("Event");

function toEvent(event: PersistedEvent): object {
  return {
    position: event.position,
    stream: event.stream,
    streamVersion: event.streamVersion,
    id: event.id,
    type: event.type,
    version: event.version,
    ...storedData(event.payload),
    metadata: event.metadata,
    traceId: event.traceId,
    correlationId: event.correlationId,
    causationId: event.causationId,
    createdAt: event.createdAt,
  };
}

/** Whatever is JSON is shown as it is; bytes in another form. */
function storedData(payload: Buffer): object {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
    JSON.parse(text);
    return { data: new JsonText(text) };
  } catch {
    return { dataBase64: payload.toString("base64") };
  }
}

const expectedVersion = z
  .union([z.enum(["any", "no-stream"]), z.number().int().min(0), bigNumber])
  .optional()
  .openapi({ description: 'Of the stream before: "any", "no-stream" or a number' });

function appending(mill: Tidemill): Endpoint {
  return endpoint({
    method: "post",
    path: "/v1/streams/:type/:id/events",
    tag: TAG,
    summary: "Append events to a stream: all of them, in order, or none",
    act: "cluster.change",
    isRoutine: true,
    params: streamParams,
    body: z
      .strictObject({ events: z.array(newEvent).min(1).max(EVENTS_MAX), expectedVersion })
      .openapi("NewEvents"),
    verbatim: ["events[].data"],
    answers: { 201: { description: "They are stored", schema: appended } },
    async handle({ params, body }) {
      const { positions, position, fromVersion, toVersion } = await mill.append(
        params,
        body.events.map(toNewEvent),
        body.expectedVersion === undefined ? {} : { expectedVersion: body.expectedVersion },
      );
      return {
        status: 201,
        body: { token: String(position), positions, fromVersion, toVersion },
      };
    },
  });
}

const events = z.object({ events: z.array(eventView) });

export function eventEndpoints(mill: Tidemill): Endpoint[] {
  return [
    appending(mill),
    endpoint({
      method: "get",
      path: "/v1/streams/:type/:id/events",
      tag: TAG,
      summary: "Read a stream",
      act: "cluster.read",
      params: streamParams,
      headers: waitFor,
      query: z.strictObject({
        fromVersion: bigNumber.optional(),
        toVersion: bigNumber.optional(),
        limit: wholeNumber(1, 1_000).optional(),
      }),
      answers: { 200: { description: "Events by version", schema: events } },
      async handle({ params, query: { limit = LIMIT, ...range } }) {
        const found = await mill.readStream(params, { ...withoutUndefined(range), limit });
        return { status: 200, body: { events: found.map(toEvent) } };
      },
    }),
    endpoint({
      method: "get",
      path: "/v1/events",
      tag: TAG,
      summary: "Read all streams by position, as visible now",
      description:
        "A lower position may still become visible later: to handle every event once, write a " +
        "consumer.",
      act: "cluster.read",
      headers: waitFor,
      query: z.strictObject({
        after: bigNumber.optional(),
        limit: wholeNumber(1, 1_000).optional(),
      }),
      answers: { 200: { description: "Events by position", schema: events } },
      async handle({ query: { after = 0n, limit = LIMIT } }) {
        const found = await mill.readAll({ after, limit });
        return { status: 200, body: { events: found.map(toEvent) } };
      },
    }),
  ];
}
