import { status } from "@grpc/grpc-js";
import type { Clock } from "../base/clock.ts";
import { messageOf, type TidemillError, TimeoutError, UnavailableError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { Timers } from "../base/timers.ts";
import { Link, type LinkOptions } from "./link.ts";
import { decideReconnect, type ReconnectRules } from "./reconnect.ts";
import { errorOfEnd, type StreamEnd } from "./remote-error.ts";

export type TokenSource = string | (() => string | Promise<string>);

/** What speaks on a line. It is told of one known link after another, and of the end of each. */
export interface Speaker<Ack> {
  /** The first message on a link. */
  hello(token: string): Uint8Array;
  /** The answer to it. Undefined: it is something else. */
  readAck(bytes: Buffer): Ack | undefined;
  onKnown(link: Link, ack: Ack): void;
  onMessage(link: Link, bytes: Buffer): void;
  onRoom(link: Link): void;
  /** A link that was known is over. */
  onLost(link: Link, end: StreamEnd): void;
  /** There will be no other link. */
  onFailed(error: TidemillError): void;
}

export interface LineOptions extends LinkOptions {
  readonly addresses: readonly string[];
  readonly token: TokenSource;
  readonly connectMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly reconnect: ReconnectRules;
}

interface Current {
  readonly link: Link;
  readonly address: string;
  knownAtMs: number | undefined;
}

/**
 * Keeps a stream open to one of several servers: connecting → known → waiting → connecting and so
 * on, until it failed or was closed (docs/adr/0012-client.md). A link that was replaced is not the
 * line's any more, but its speaker still hears from it until it ends.
 */
export class Line<Ack> {
  readonly #options: LineOptions;
  readonly #speaker: Speaker<Ack>;
  readonly #timers: Timers;
  readonly #links = new Set<Link>();
  #state: "idle" | "connecting" | "known" | "waiting" | "failed" | "closed" = "idle";
  #current: Current | undefined;
  #nextAddress = 0;
  #failures = 0;
  #refusals = 0;
  #wasEverKnown = false;
  #lastEnd = "";
  #goodbye: { readonly link: Link; readonly resolve: () => void } | undefined;

  constructor(speaker: Speaker<Ack>, options: LineOptions) {
    this.#speaker = speaker;
    this.#options = options;
    this.#timers = new Timers(options.clock);
  }

  /** Why there is no stream, for people; "" when there was always one. */
  get lastEnd(): string {
    return this.#lastEnd;
  }

  open(): void {
    if (this.#state === "idle") void this.#connect();
  }

  /** The server of this link goes: another one is sought at once, while this one still speaks. */
  replace(link: Link): void {
    if (this.#current?.link !== link || this.#state !== "known") return;
    this.#current = undefined;
    this.#options.logger.info({ server: link.address }, "the server drains; connecting elsewhere");
    void this.#connect();
  }

  /** Says that nothing follows, waits at most so long until the server has ended it, and closes. */
  async hangUp(ms: number): Promise<void> {
    const link = this.#state === "known" ? this.#current?.link : undefined;
    if (link !== undefined) {
      await new Promise<void>((resolve) => {
        this.#goodbye = { link, resolve };
        this.#timers.after(ms, resolve);
        link.close();
      });
    }
    this.close();
  }

  /** Ends everything that is open, at once. */
  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#timers.close();
    for (const link of this.#links) link.abort("closed by the client");
  }

  async #connect(): Promise<void> {
    this.#state = "connecting";
    const { addresses, token: source, logger } = this.#options;
    const address = addresses[this.#nextAddress % addresses.length] ?? "";
    this.#nextAddress += 1;
    let token: string;
    try {
      token = typeof source === "string" ? source : await source();
      if (typeof token !== "string") throw new TypeError("it is no text");
    } catch (error) {
      logger.warn({ error: messageOf(error) }, "there is no token to connect with");
      const details = `the function that gives the token failed: ${messageOf(error)}`;
      this.#after({ code: status.UNAVAILABLE, details }, address, undefined);
      return;
    }
    if (this.#isOver) return;
    this.#openLink(address, token);
  }

  get #isOver(): boolean {
    return this.#state === "closed" || this.#state === "failed";
  }

  #openLink(address: string, token: string): void {
    const { connectMs } = this.#options;
    const link: Link = new Link(address, this.#options, {
      onMessage: (bytes) => this.#onMessage(current, bytes),
      onRoom: () => {
        if (current.knownAtMs !== undefined) this.#speaker.onRoom(link);
      },
      onEnd: (end) => this.#onEnd(current, end),
    });
    const current: Current = { link, address, knownAtMs: undefined };
    this.#current = current;
    this.#links.add(link);
    this.#timers.after(connectMs, () => {
      if (current.knownAtMs === undefined) {
        link.abort(`no answer came within ${connectMs / 1000} s`);
      }
    });
    link.send(this.#speaker.hello(token));
  }

  #onMessage(current: Current, bytes: Buffer): void {
    const { link } = current;
    try {
      if (current.knownAtMs !== undefined) {
        this.#speaker.onMessage(link, bytes);
        return;
      }
      const ack = this.#speaker.readAck(bytes);
      if (ack === undefined) {
        link.abort("the server did not answer the hello");
        return;
      }
      this.#onAck(current, ack);
    } catch (error) {
      // A server of another version, or something that is no server of ours.
      this.#options.logger.error(
        { server: current.address, error: messageOf(error) },
        "a message of the server cannot be read",
      );
      link.abort("a message of the server cannot be read");
    }
  }

  #onAck(current: Current, ack: Ack): void {
    current.knownAtMs = this.#options.clock.now();
    this.#state = "known";
    this.#wasEverKnown = true;
    this.#refusals = 0;
    this.#options.logger.info({ server: current.address }, "connected");
    this.#speaker.onKnown(current.link, ack);
  }

  #onEnd(current: Current, end: StreamEnd): void {
    const { link, address, knownAtMs } = current;
    this.#links.delete(link);
    if (knownAtMs !== undefined) this.#speaker.onLost(link, end);
    if (this.#goodbye?.link === link) {
      this.#goodbye.resolve();
      return;
    }
    if (this.#current !== current || this.#isOver) return;
    this.#current = undefined;
    this.#after(end, address, knownAtMs);
  }

  #after(end: StreamEnd, address: string, knownAtMs: number | undefined): void {
    const { addresses, token, clock, logger, reconnect } = this.#options;
    this.#lastEnd = errorOfEnd(end, address).message;
    const decision = decideReconnect(
      {
        code: end.code,
        wasKnown: knownAtMs !== undefined,
        wasEverKnown: this.#wasEverKnown,
        knownMs: knownAtMs === undefined ? 0 : clock.now() - knownAtMs,
        failures: this.#failures,
        refusals: this.#refusals,
        hasFreshToken: typeof token === "function",
        addressCount: addresses.length,
      },
      reconnect,
    );
    if (decision.kind === "fail") {
      this.#state = "failed";
      this.#timers.close();
      logger.error({ server: address, error: this.#lastEnd }, "the server refuses this client");
      this.#speaker.onFailed(errorOfEnd(end, address));
      return;
    }
    this.#failures = decision.failures;
    this.#refusals = decision.refusals;
    this.#state = "waiting";
    const fields = { server: address, error: this.#lastEnd, waitMs: Math.round(decision.waitMs) };
    logger.warn(fields, "the stream ended; connecting again");
    this.#timers.after(decision.waitMs, () => void this.#connect());
  }
}

/** Nobody answered in the time that a caller had for it. */
export function notConnected(seconds: number, lastEnd: string): TidemillError {
  const why = lastEnd === "" ? "no server answered" : lastEnd;
  return lastEnd === ""
    ? new TimeoutError(`not connected within ${seconds} s: ${why}`)
    : new UnavailableError(`not connected within ${seconds} s: ${why}`);
}
