import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createSecureServer, type ServerOptions } from "node:https";
import type { Socket } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, messageOf } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { refuseUnknown, requireNumber } from "../../base/options.ts";
import type { Service } from "../../base/supervisor.ts";
import type { TlsOptions } from "../grpc/tls.ts";

export interface ListenOptions {
  /** Defaults to "127.0.0.1". */
  readonly host?: string;
  /** 0 for any that is free. */
  readonly port: number;
  /**
   * Certificate and key in PEM; with `clientCa`, clients need a certificate of that authority.
   *
   * Defaults to none: plain HTTP.
   */
  readonly tls?: TlsOptions;
  /** How long a stop waits for requests under way. Defaults to 10. */
  readonly drainSeconds?: number;
}

export interface ListenerContext {
  /** Shown in logs, and the name of the service. */
  readonly name: string;
  readonly fetch: (request: Request) => Promise<Response>;
  /** Whether the port is this process's alone, where others share those that it opens. */
  readonly isExclusive?: boolean;
  /** Called when a stop begins, before the port is closed. */
  readonly onDrain?: () => void;
  /** Defaults to silence. */
  readonly logger?: Logger;
  /** Defaults to the clock of the process. */
  readonly clock?: Clock;
}

const HEADERS_MS = 10_000;
const REQUEST_MS = 60_000;
const KEEP_ALIVE_MS = 65_000;
const HEADER_BYTES_MAX = 16 * 1024;

/** A port on which a fetch handler answers. A service for a supervisor. */
export class HttpListener implements Service {
  readonly name: string;
  readonly #options: ListenOptions;
  readonly #context: ListenerContext;
  readonly #server: Server;
  readonly #underWay = new Set<ServerResponse>();
  readonly #sockets = new Set<Socket>();
  #isDraining = false;
  #drainsUntilMs: number | undefined;
  #listening: Promise<number> | undefined;

  constructor(options: ListenOptions, context: ListenerContext) {
    refuseUnknown("listen", options, ["host", "port", "tls", "drainSeconds"]);
    requireNumber("port", options.port, { min: 0, max: 65_535, integer: true });
    requireNumber("drainSeconds", options.drainSeconds ?? 0, { min: 0, max: 3_600 });
    this.name = context.name;
    this.#options = options;
    this.#context = context;
    // Its own Request and Response stay out of everybody else's way.
    const listener = getRequestListener(context.fetch, { overrideGlobalObjects: false });
    const limits = {
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
    };
    const { tls } = options;
    const onRequest = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
      this.#underWay.add(outgoing);
      outgoing.once("close", () => void this.#underWay.delete(outgoing));
      if (this.#isDraining) sayLast(outgoing);
      void listener(incoming, outgoing);
    };
    this.#server =
      tls === undefined
        ? createServer(limits, onRequest)
        : createSecureServer({ ...limits, ...secured(tls) }, onRequest);
    this.#server.on(tls === undefined ? "connection" : "secureConnection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => void this.#sockets.delete(socket));
    });
  }

  /** The port, once it is open. May be called before `run`, so that a refused port is known. */
  async listen(): Promise<number> {
    this.#listening ??= this.#open();
    return await this.#listening;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.listen();
    if (!signal.aborted) await once(signal, "abort");
    await this.#close();
  }

  async #open(): Promise<number> {
    const { host = "127.0.0.1", port } = this.#options;
    const { name, logger = silentLogger, isExclusive = false } = this.#context;
    try {
      this.#server.listen({ port, host, exclusive: isExclusive });
      await once(this.#server, "listening");
    } catch (error) {
      throw new ConfigError(
        `cannot listen on ${host}:${port} for ${name} (${messageOf(error)}); ` +
          "is another program there? choose another port",
      );
    }
    const address = this.#server.address();
    const open = typeof address === "object" && address !== null ? address.port : port;
    logger.info({ host, port: open }, `${name} listens`);
    return open;
  }

  /** Says that it will go, and still answers. The time that a stop may take begins. */
  drain(): void {
    if (this.#drainsUntilMs !== undefined) return;
    const { onDrain, clock = systemClock } = this.#context;
    this.#drainsUntilMs = clock.now() + (this.#options.drainSeconds ?? 10) * 1000;
    onDrain?.();
  }

  /** What is under way is answered, for a while; who only keeps a connection is sent away. */
  async #close(): Promise<void> {
    const { clock = systemClock } = this.#context;
    this.drain();
    this.#isDraining = true;
    const busy = new Set(Array.from(this.#underWay, ({ socket }) => socket));
    for (const outgoing of this.#underWay) sayLast(outgoing);
    // Node does not take one for idle that was opened and never used.
    for (const socket of this.#sockets) if (!busy.has(socket)) socket.destroy();
    const closed = once(this.#server, "close");
    this.#server.close();
    const leftMs = Math.max(0, (this.#drainsUntilMs ?? 0) - clock.now());
    const cancel = clock.after(leftMs, () => this.#server.closeAllConnections());
    await closed;
    cancel();
  }
}

function secured({ cert, key, clientCa }: TlsOptions): ServerOptions {
  const mutual = { ca: clientCa, requestCert: true, rejectUnauthorized: true };
  return { cert, key, minVersion: "TLSv1.2", ...(clientCa === undefined ? {} : mutual) };
}

/** No other request follows on this connection. */
function sayLast(outgoing: ServerResponse): void {
  if (!outgoing.headersSent) outgoing.setHeader("connection", "close");
}
