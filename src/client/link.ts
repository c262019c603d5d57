import { type ChannelCredentials, Client, type ClientDuplexStream, status } from "@grpc/grpc-js";
import type { StreamEnd } from "./remote-error.ts";

export interface LinkOptions {
  /** Such as "/tidemill.v1.WorkerStream/Stream". */
  readonly path: string;
  readonly credentials: ChannelCredentials;
  readonly serverName: string | undefined;
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
}

export interface LinkEvents {
  onMessage(bytes: Buffer): void;
  /** What was written has been taken: more may be. */
  onRoom(): void;
  /** Once, and last. */
  onEnd(end: StreamEnd): void;
}

/** The server says how much it takes; this is what the client takes. */
const MESSAGE_BYTES_MAX = 8 * 1024 * 1024;

const identity = (bytes: Buffer): Buffer => bytes;

/**
 * One stream to one server, on a connection of its own, in bytes. It is open until `onEnd`, which
 * comes once whatever happens: the server's status, a lost connection, or our own `abort`.
 */
export class Link {
  readonly address: string;
  readonly #client: Client;
  readonly #call: ClientDuplexStream<Buffer, Buffer>;
  readonly #events: LinkEvents;
  #state: "open" | "closing" | "over" = "open";
  #isFull = false;

  constructor(address: string, options: LinkOptions, events: LinkEvents) {
    this.address = address;
    this.#events = events;
    this.#client = new Client(address, options.credentials, {
      // Connections that a broken one shared would be broken with it.
      "grpc.use_local_subchannel_pool": 1,
      "grpc.keepalive_time_ms": options.keepaliveMs,
      "grpc.keepalive_timeout_ms": options.keepaliveTimeoutMs,
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
      "grpc.max_send_message_length": -1,
      // Whoever holds a link decides about the next one.
      "grpc.enable_retries": 0,
      ...(options.serverName === undefined
        ? {}
        : {
            "grpc.ssl_target_name_override": options.serverName,
            "grpc.default_authority": options.serverName,
          }),
    });
    this.#call = this.#client.makeBidiStreamRequest(options.path, identity, identity);
    this.#call.on("data", (bytes: Buffer) => {
      if (this.#state !== "over") this.#events.onMessage(bytes);
    });
    this.#call.on("drain", () => {
      this.#isFull = false;
      if (this.#state === "open") this.#events.onRoom();
    });
    this.#call.on("error", () => {}); // The status says it.
    this.#call.on("status", ({ code, details }: StreamEnd) => this.#finish({ code, details }));
  }

  get isOpen(): boolean {
    return this.#state === "open";
  }

  /** More would only wait in memory: `onRoom` follows. */
  get isFull(): boolean {
    return this.#isFull;
  }

  send(bytes: Uint8Array): void {
    if (this.#state !== "open") return;
    const message = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (!this.#call.write(message)) this.#isFull = true;
  }

  /** Nothing more is sent; what the server says is still heard. */
  close(): void {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#call.end();
  }

  /** Ends it at once. */
  abort(details: string): void {
    this.#finish({ code: status.CANCELLED, details });
  }

  #finish(end: StreamEnd): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#call.cancel();
    this.#client.close();
    this.#events.onEnd(end);
  }
}
