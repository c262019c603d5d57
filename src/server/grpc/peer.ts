import { type ServerDuplexStream, status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { messageOf, wellFormed } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { Rounds } from "../../base/rounds.ts";
import { Timers } from "../../base/timers.ts";
import { type Gate, gateOf } from "./gate.ts";
import { type MeasureLimits, type MessageShape, measure } from "./measure.ts";
import { resetCall } from "./reset.ts";

/** A call whose messages are bytes. */
export type RawCall = ServerDuplexStream<Buffer, Buffer>;

/** In both directions, as Go's gRPC has it. */
export const MESSAGE_BYTES_MAX = 4 * 1024 * 1024;
/** A longer text may not fit into the headers that a client takes. */
const DETAILS_LENGTH_MAX = 500;
/** Messages of one stream in one round of the event loop. */
const ROUND_MAX = 64;
/** While so much waits to be read by the client, nothing is read from it. */
const WRITE_BYTES_HIGH = 256 * 1024;

/** How messages of one kind of stream are read and written. */
export interface Codec<In, Out> {
  readonly shape: MessageShape;
  decode(bytes: Buffer): In;
  encode(message: Out): Uint8Array;
}

/** Ends the stream with a status when it is thrown to its peer. */
export class StreamError extends Error {
  readonly code: status;

  constructor(code: status, details: string) {
    super(details);
    this.name = "StreamError";
    this.code = code;
  }
}

/** What is done with one stream. What it throws ends the stream: a StreamError says how. */
export interface PeerHandler<In> {
  /** Before a message is decoded. The stream waits for it. */
  admit(bytes: number, entries: number): void | Promise<void>;
  /** One message at a time: the next comes when this resolves. */
  onMessage(message: In): void | Promise<void>;
  /** The client has said all, and all of it was handled. */
  onHalfClose(): void;
  /** The server goes. The stream is to be ended within the time. */
  onDrain(graceMs: number): void;
  /** Once, and last: nothing can be said or heard any more. */
  onOver(): void;
}

export interface PeerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits: MeasureLimits;
  /** How long a client may take for its hello. */
  readonly helloMs: number;
  /** How long the end of a stream may take. */
  readonly endMs: number;
  /** How long a client may leave unread what was sent to it. */
  readonly stallMs: number;
  /** So much may wait to be read by the client. */
  readonly writeBytesMax: number;
  /** The hello of the tenant was accepted. Throws a StreamError when it has too many streams. */
  readonly onWelcome?: (tenant: string) => void;
}

/**
 * One bidirectional stream with one client. It is open, then ending, then over:
 *
 * - open: messages are read one at a time, counted before they are decoded, and handled; nothing is
 *   read while a message is handled or while too much waits to be read by the client.
 * - ending, by `end`: nothing is read or sent any more; what was sent goes out, then the status.
 * - over, in `#finish` and nowhere else: the call was closed, by the client, its connection or our
 *   status; or our time for the end ran out, and the stream was reset.
 */
export class Peer<In, Out> {
  /** Resolves when the stream is over. */
  readonly over: Promise<void>;
  readonly #call: RawCall;
  readonly #codec: Codec<In, Out>;
  readonly #options: PeerOptions;
  readonly #gate: Gate;
  readonly #timers: Timers;
  readonly #rounds = new Rounds(ROUND_MAX, () => this.#pump());
  readonly #inbox: Buffer[] = [];
  #handler: PeerHandler<In> | undefined;
  #resolveOver: () => void = () => {};
  #state: "open" | "ending" | "over" = "open";
  #isBusy = false;
  #isPumping = false;
  #halfClose: "none" | "heard" | "told" = "none";
  #cancelHello: () => void = () => {};
  #unreadBytes = 0;
  #takenAtMs = 0;
  #isWatchingStall = false;

  constructor(call: RawCall, codec: Codec<In, Out>, options: PeerOptions) {
    this.#call = call;
    this.#codec = codec;
    this.#options = options;
    this.#gate = gateOf(call);
    this.#timers = new Timers(options.clock);
    this.over = new Promise((resolve) => {
      this.#resolveOver = resolve;
    });
  }

  get isOver(): boolean {
    return this.#state === "over";
  }

  /** Whether anything can still be said to the client. */
  get isOpen(): boolean {
    return this.#state === "open";
  }

  /** What waits to be read by the client. */
  get unreadBytes(): number {
    return this.#unreadBytes;
  }

  /** Where the client is, for logs. */
  get address(): string {
    return this.#call.getPeer();
  }

  serve(handler: PeerHandler<In>): void {
    this.#handler = handler;
    const { helloMs } = this.#options;
    this.#cancelHello = this.#timers.after(helloMs, () => {
      this.end(status.DEADLINE_EXCEEDED, `no hello came within ${helloMs / 1000} s`);
    });
    this.#call.on("close", () => this.#finish());
    this.#call.on("cancelled", () => this.#finish());
    this.#call.on("end", () => {
      this.#halfClose = "heard";
      this.#pump();
    });
    this.#call.on("data", (bytes: Buffer) => {
      this.#inbox.push(bytes);
      this.#pump();
    });
  }

  /** The hello was accepted. Throws a StreamError when the tenant has too many streams. */
  welcome(tenant: string): void {
    this.#options.onWelcome?.(tenant);
    this.#cancelHello();
  }

  /**
   * Sends a message, unless the stream is ending. Never throws: callers are often behind an answer
   * of the database, where nobody hears it. What cannot be sent ends this stream and no other.
   */
  send(message: Out): void {
    if (this.#state !== "open") return;
    let bytes: Buffer;
    try {
      const encoded = this.#codec.encode(message);
      bytes = Buffer.from(encoded.buffer, encoded.byteOffset, encoded.byteLength);
    } catch (error) {
      this.#onFailure(error);
      return;
    }
    if (bytes.length > MESSAGE_BYTES_MAX) {
      this.#options.logger.error({ bytes: bytes.length }, "a message to a client is too large");
      this.end(status.INTERNAL, "internal error");
      return;
    }
    this.#unreadBytes += bytes.length;
    if (this.#unreadBytes > this.#options.writeBytesMax) {
      this.#giveUp("a client does not read what is sent to it");
      return;
    }
    this.#watchStall();
    this.#call.write(bytes, () => this.#onTaken(bytes.length));
  }

  /** Ends the stream with a status, after what was sent. Later calls change nothing. */
  end(code: status, details = ""): void {
    if (this.#state !== "open") return;
    this.#state = "ending";
    this.#inbox.length = 0;
    this.#cancelHello();
    this.#timers.after(this.#options.endMs, () => this.#giveUp("a client did not take its end"));
    if (code === status.OK) this.#call.end();
    else {
      const text = wellFormed(details.slice(0, DETAILS_LENGTH_MAX));
      // grpc-js takes the status from this event, and sends it behind what was written.
      this.#call.emit("error", { code, details: text });
    }
  }

  /** The server goes. */
  drain(graceMs: number): void {
    if (this.#state === "open") this.#handler?.onDrain(graceMs);
  }

  get #isWilling(): boolean {
    return this.#state === "open" && !this.#isBusy && this.#unreadBytes < WRITE_BYTES_HIGH;
  }

  /** Handles what came, as far as it may be handled now, and says whether more may come. */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    try {
      for (;;) {
        this.#gate.close();
        if (!this.#isWilling) return;
        const bytes = this.#inbox[0];
        if (bytes === undefined) {
          this.#gate.open();
          if (this.#inbox.length > 0) continue;
          this.#tellHalfClose();
          return;
        }
        if (!this.#rounds.step()) return;
        this.#inbox.shift();
        this.#handle(bytes);
      }
    } finally {
      this.#isPumping = false;
    }
  }

  #tellHalfClose(): void {
    if (this.#halfClose !== "heard") return;
    this.#halfClose = "told";
    this.#handler?.onHalfClose();
  }

  #handle(bytes: Buffer): void {
    try {
      const handling = this.#admit(bytes);
      if (!(handling instanceof Promise)) return;
      this.#isBusy = true;
      handling
        .catch((error: unknown) => this.#onFailure(error))
        .finally(() => {
          this.#isBusy = false;
          this.#pump();
        });
    } catch (error) {
      this.#onFailure(error);
    }
  }

  #admit(bytes: Buffer): void | Promise<void> {
    const { limits } = this.#options;
    const entries = measure(bytes, this.#codec.shape, limits);
    if (entries === "malformed") throw unreadable();
    if (entries === "too-many") {
      const most = `a message has at most ${limits.entriesMax} entries`;
      throw new StreamError(status.INVALID_ARGUMENT, `${most}; send several messages`);
    }
    const admitted = this.#handler?.admit(bytes.length, entries);
    return admitted instanceof Promise
      ? admitted.then(() => this.#deliver(bytes))
      : this.#deliver(bytes);
  }

  #deliver(bytes: Buffer): void | Promise<void> {
    if (this.#state !== "open") return;
    let message: In;
    try {
      message = this.#codec.decode(bytes);
    } catch {
      throw unreadable();
    }
    return this.#handler?.onMessage(message);
  }

  #onFailure(error: unknown): void {
    if (error instanceof StreamError) {
      this.end(error.code, error.message);
      return;
    }
    this.#options.logger.error({ error: messageOf(error) }, "a stream failed");
    this.end(status.INTERNAL, "internal error");
  }

  #onTaken(bytes: number): void {
    this.#unreadBytes -= bytes;
    this.#takenAtMs = this.#options.clock.now();
    this.#pump();
  }

  #watchStall(): void {
    if (this.#isWatchingStall) return;
    this.#isWatchingStall = true;
    const { clock, stallMs } = this.#options;
    this.#takenAtMs = clock.now();
    const look = (): void => {
      const idleMs = clock.now() - this.#takenAtMs;
      if (this.#unreadBytes === 0) this.#isWatchingStall = false;
      else if (idleMs >= stallMs) this.#giveUp("a client does not read what is sent to it");
      else this.#timers.after(stallMs - idleMs, look);
    };
    this.#timers.after(stallMs, look);
  }

  /** A client that reads nothing cannot be told anything either. */
  #giveUp(reason: string): void {
    if (this.#state === "over") return;
    this.#options.logger.warn({ client: this.address, unreadBytes: this.#unreadBytes }, reason);
    resetCall(this.#call);
    this.#finish();
  }

  #finish(): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#inbox.length = 0;
    this.#timers.close();
    this.#call.destroy();
    this.#gate.open(); // What it held is nobody's any more.
    this.#resolveOver();
    this.#handler?.onOver();
  }
}

const unreadable = (): StreamError =>
  new StreamError(status.INVALID_ARGUMENT, "the message cannot be read");
