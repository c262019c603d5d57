import { refuseUnknown } from "../../base/options.ts";
import type { HttpCaller } from "./http-call.ts";
import { pathOf } from "./rest-tasks.ts";

export interface RestStream {
  readonly type: string;
  readonly id: string;
}

/** An event to append. Its data is JSON, or bytes as base64. */
export interface RestNewEvent {
  readonly type: string;
  readonly data?: unknown;
  readonly dataBase64?: string;
  readonly version?: number;
  readonly id?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly traceId?: string;
  readonly correlationId?: string;
  readonly causationId?: string;
}

export interface AppendedEvents {
  /** For `waitFor`: reads that carry it see what was appended. */
  readonly token: string;
  readonly positions: readonly string[];
  readonly fromVersion: string;
  readonly toVersion: string;
}

/** An event as the server shows it. */
export interface EventRecord {
  readonly position: string;
  readonly stream: RestStream;
  readonly streamVersion: string;
  readonly id: string;
  readonly type: string;
  readonly version: number;
  readonly data?: unknown;
  readonly dataBase64?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly traceId?: string;
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly createdAt: string;
}

/** Answered when the consumer has handled what the append of the token stored. */
export interface WaitFor {
  readonly consumer: string;
  readonly token: string;
}

export interface ReadEventsOptions {
  readonly limit?: number;
  /** Defaults to no wait. */
  readonly waitFor?: WaitFor;
}

/** A server waits at most so long for a consumer, unless told otherwise. */
const WAIT_FOR_SECONDS = 10;

/** Events, over HTTP; with an admin's token. */
export class RestEvents {
  readonly #http: HttpCaller;

  constructor(http: HttpCaller) {
    this.#http = http;
  }

  /** All of them, in order, or none. An event with an id is stored once, however often sent. */
  async append(
    { type, id }: RestStream,
    events: readonly RestNewEvent[],
    options: { readonly expectedVersion?: "any" | "no-stream" | number | `${bigint}` } = {},
  ): Promise<AppendedEvents> {
    refuseUnknown("append", options, ["expectedVersion"]);
    const { body } = await this.#http.call({
      method: "POST",
      path: pathOf("streams", type, id, "events"),
      body: { events, ...options },
    });
    return body as AppendedEvents;
  }

  /** One stream, by version. */
  async read(
    { type, id }: RestStream,
    options: ReadEventsOptions & {
      readonly fromVersion?: string | number;
      readonly toVersion?: string | number;
    } = {},
  ): Promise<EventRecord[]> {
    refuseUnknown("read", options, ["limit", "waitFor", "fromVersion", "toVersion"]);
    const { waitFor, ...query } = options;
    return await this.#read(pathOf("streams", type, id, "events"), query, waitFor);
  }

  /** All streams by position, as visible now. */
  async readAll(
    options: ReadEventsOptions & { readonly after?: string | number } = {},
  ): Promise<EventRecord[]> {
    refuseUnknown("readAll", options, ["limit", "waitFor", "after"]);
    const { waitFor, ...query } = options;
    return await this.#read("/v1/events", query, waitFor);
  }

  async #read(
    path: string,
    query: Readonly<Record<string, string | number | undefined>>,
    waitFor: WaitFor | undefined,
  ): Promise<EventRecord[]> {
    const { body } = await this.#http.call({
      path,
      query,
      headers: waitForHeader(waitFor),
      waitSeconds: waitFor === undefined ? 0 : WAIT_FOR_SECONDS,
    });
    return (body as { events: EventRecord[] }).events;
  }
}

export function waitForHeader(waitFor: WaitFor | undefined): Record<string, string> {
  if (waitFor === undefined) return {};
  return { "x-wait-for": `${encodeURIComponent(waitFor.consumer)}@${waitFor.token}` };
}
