import { Server, status } from "@grpc/grpc-js";
import { HealthImplementation } from "grpc-health-check";
import { pause } from "../../base/clock.ts";
import { ConfigError, messageOf } from "../../base/errors.ts";
import type { Service } from "../../base/supervisor.ts";
import { gateInterceptor } from "./gate.ts";
import {
  type Codec,
  MESSAGE_BYTES_MAX,
  Peer,
  type PeerHandler,
  type PeerOptions,
  type RawCall,
} from "./peer.ts";
import { type CountedStream, StreamShares, type StreamSharesOptions } from "./stream-shares.ts";
import { credentialsOf, type TlsOptions } from "./tls.ts";

/** One kind of stream that a listener serves. */
export interface StreamRoute {
  /** Such as "/producerpb.ProducerStream/Stream". */
  readonly path: string;
  open(call: RawCall, options: PeerOptions): OpenStream;
}

/** What the listener needs of a stream, whatever its messages are. */
export type OpenStream = Pick<Peer<never, never>, "drain" | "end" | "over">;

export function streamRoute<In, Out>(
  path: string,
  codec: Codec<In, Out>,
  accept: (peer: Peer<In, Out>) => PeerHandler<In>,
): StreamRoute {
  return {
    path,
    open(call, options) {
      const peer = new Peer(call, codec, options);
      peer.serve(accept(peer));
      return peer;
    },
  };
}

export interface GrpcListenerOptions extends PeerOptions, StreamSharesOptions {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly tls: TlsOptions | undefined;
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
  /** On one connection. */
  readonly connectionStreamsMax: number;
  /** In all. */
  readonly streamsMax: number;
  readonly drainMs: number;
  /** Told when a stream begins or is over. */
  readonly onCount: (streams: number) => void;
}

/** What is left of a connection when all of its streams are over. */
const GOODBYE_MS = 1_000;

const identity = (bytes: Buffer): Buffer => bytes;

/**
 * Serves streams on one address. When it is told to stop it takes no more, tells those that are
 * there, waits for them, ends what is left, and closes.
 */
export class GrpcListener implements Service {
  readonly name: string;
  readonly #options: GrpcListenerOptions;
  readonly #server: Server;
  readonly #health = new HealthImplementation();
  /** Those whose health may be asked for; "" is the server. */
  readonly #services: readonly string[];
  readonly #streams = new Set<OpenStream>();
  readonly #shares: StreamShares;
  #isDraining = false;
  #draining: Promise<void> | undefined;
  #port = 0;

  constructor(options: GrpcListenerOptions, routes: readonly StreamRoute[]) {
    this.name = options.name;
    this.#options = options;
    this.#shares = new StreamShares(options);
    this.#server = new Server({
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
      "grpc.max_send_message_length": MESSAGE_BYTES_MAX,
      "grpc.max_concurrent_streams": options.connectionStreamsMax,
      "grpc.keepalive_time_ms": options.keepaliveMs,
      "grpc.keepalive_timeout_ms": options.keepaliveTimeoutMs,
      interceptors: [gateInterceptor],
    });
    for (const route of routes) this.#serve(route);
    this.#services = ["", ...routes.map(({ path }) => path.split("/")[1] ?? "")];
    this.#health.addToServer(this.#server);
  }

  /** Where it listens, once it does. */
  get address(): { readonly host: string; readonly port: number } {
    return { host: this.#options.host, port: this.#port };
  }

  /** Streams that are not over. */
  get streamCount(): number {
    return this.#streams.size;
  }

  async listen(): Promise<void> {
    const { host, port, tls, logger } = this.#options;
    const address = `${host.includes(":") ? `[${host}]` : host}:${port}`;
    try {
      this.#port = await new Promise((resolve, reject) => {
        this.#server.bindAsync(address, credentialsOf(tls), (error, bound) => {
          if (error === null) resolve(bound);
          else reject(error);
        });
      });
    } catch (error) {
      this.close();
      throw new ConfigError(
        `cannot listen on ${address} for ${this.name} streams (${messageOf(error)}); ` +
          "is another program there? choose another port",
      );
    }
    for (const service of this.#services) this.#health.setStatus(service, "SERVING");
    const fields = { listener: this.name, host, port: this.#port, tls: tls !== undefined };
    logger.info(fields, "listening");
  }

  async run(signal: AbortSignal): Promise<void> {
    await pause(Infinity, this.#options.clock, signal);
    this.drain();
    await this.#draining;
  }

  /** Begins to stop, so that several may do so at the same time. `run` waits for its end. */
  drain(): void {
    this.#draining ??= this.#drain();
  }

  /** At once, whatever is under way. */
  close(): void {
    this.#server.forceShutdown();
  }

  #serve(route: StreamRoute): void {
    const stream = {
      path: route.path,
      requestStream: true,
      responseStream: true,
      requestSerialize: identity,
      requestDeserialize: identity,
      responseSerialize: identity,
      responseDeserialize: identity,
    } as const;
    this.#server.addService(
      { stream },
      {
        stream: (call: RawCall) => {
          const peer = call.getPeer();
          const refusal = this.#refusalOf(peer);
          if (refusal !== undefined) {
            call.emit("error", { code: status.UNAVAILABLE, details: refusal });
            return;
          }
          const counted = this.#shares.arrive(peer);
          const onWelcome = (tenant: string): void => counted.enter(tenant);
          this.#remember(route.open(call, { ...this.#options, onWelcome }), counted);
        },
      },
    );
  }

  #refusalOf(peer: string): string | undefined {
    const { streamsMax } = this.#options;
    if (this.#isDraining) return "the server is stopping";
    if (this.#streams.size >= streamsMax) return "the server has as many streams as it takes";
    return this.#shares.refusalOf(peer);
  }

  #remember(stream: OpenStream, counted: CountedStream): void {
    const { onCount } = this.#options;
    this.#streams.add(stream);
    onCount(this.#streams.size);
    void stream.over.then(() => {
      this.#streams.delete(stream);
      counted.leave();
      onCount(this.#streams.size);
    });
  }

  async #drain(): Promise<void> {
    const { drainMs, endMs, logger } = this.#options;
    this.#isDraining = true;
    for (const service of this.#services) this.#health.setStatus(service, "NOT_SERVING");
    // Takes no connections, and says so on those that are there.
    const closed = new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    const streams = [...this.#streams];
    for (const stream of streams) stream.drain(drainMs);
    const over = Promise.all(streams.map((stream) => stream.over));
    await this.#within(over, drainMs);
    if (this.#streams.size > 0) {
      logger.warn(
        { listener: this.name, streams: this.#streams.size },
        "streams outlived the drain",
      );
      for (const stream of this.#streams) stream.end(status.UNAVAILABLE, "the server is stopping");
      await this.#within(over, endMs + GOODBYE_MS);
    }
    // Clients that watch the health of the server never go by themselves.
    await this.#within(closed, GOODBYE_MS);
    this.close();
  }

  async #within(done: Promise<unknown>, ms: number): Promise<void> {
    const ended = new AbortController();
    await Promise.race([done, pause(ms, this.#options.clock, ended.signal)]);
    ended.abort();
  }
}
