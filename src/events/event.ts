import type { TextRow } from "../db/database.ts";

/** Names one stream: the events of one thing, in order. */
export interface StreamRef {
  readonly type: string;
  readonly id: string;
}

/** An event to append. Its payload is `data` (stored as JSON) or `bytes` (stored as given). */
export interface NewEvent {
  /** What happened, such as "OrderPaid". */
  readonly type: string;
  readonly data?: unknown;
  readonly bytes?: Uint8Array;
  /** Version of the payload's shape. Defaults to 1. */
  readonly version?: number;
  /** Unique for ever, so an append may be repeated safely. Defaults to a new UUID. */
  readonly id?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly traceId?: string;
  readonly correlationId?: string;
  readonly causationId?: string;
  /** When given, must be the stream that is appended to. */
  readonly stream?: StreamRef;
}

/**
 * An event as stored. Payload, metadata and time are decoded when first asked for: a consumer that
 * looks only at the type of most events does not pay for the rest.
 */
export class PersistedEvent {
  readonly position: bigint;
  readonly streamType: string;
  readonly streamId: string;
  readonly id: string;
  readonly type: string;
  readonly #row: TextRow;
  #payload: Buffer | undefined;
  #data: { readonly value: unknown } | undefined;

  constructor(row: TextRow) {
    this.#row = row;
    this.position = BigInt(row[0] ?? 0);
    this.streamType = row[1] ?? "";
    this.streamId = row[2] ?? "";
    this.id = row[4] ?? "";
    this.type = row[5] ?? "";
  }

  get stream(): StreamRef {
    return { type: this.streamType, id: this.streamId };
  }

  get streamVersion(): bigint {
    return BigInt(this.#row[3] ?? 0);
  }

  /** Version of the payload's shape. */
  get version(): number {
    return Number(this.#row[6]);
  }

  get payload(): Buffer {
    this.#payload ??= Buffer.from(this.#row[7] ?? "", "hex");
    return this.#payload;
  }

  /** The payload as JSON. Throws a SyntaxError when it is not. */
  get data(): unknown {
    this.#data ??= { value: JSON.parse(this.payload.toString("utf8")) as unknown };
    return this.#data.value;
  }

  get metadata(): Readonly<Record<string, unknown>> | undefined {
    const text = this.#row[8];
    return text == null ? undefined : (JSON.parse(text) as Record<string, unknown>);
  }

  get traceId(): string | undefined {
    return this.#row[9] ?? undefined;
  }

  get correlationId(): string | undefined {
    return this.#row[10] ?? undefined;
  }

  get causationId(): string | undefined {
    return this.#row[11] ?? undefined;
  }

  get createdAt(): Date {
    return new Date(Number(this.#row[12]) * 1000);
  }

  /** Roughly what it holds in memory, for bounds on caches. */
  get sizeBytes(): number {
    return 200 + (this.#row[7]?.length ?? 0) + (this.#row[8]?.length ?? 0);
  }
}
