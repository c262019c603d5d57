import {
  type Agent,
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { type Address, formatAddress } from "./address.ts";
import { EgressFailedError, type EgressPhase, EgressTimeoutError } from "./errors.ts";
import type { ResolvedEgressOptions } from "./options.ts";
import type { Hop } from "./request.ts";
import type { Target } from "./target.ts";

/** What one request was answered. */
export interface Answer {
  readonly status: number;
  /** By names in lower case; repeated ones are joined by commas. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
  /** The answer went on after `body`; the rest was not read. */
  readonly isTruncated: boolean;
}

/** What connections are made with. */
export interface Wires {
  readonly options: ResolvedEgressOptions;
  readonly clock: Clock;
  readonly plain: Agent;
  readonly tls: Agent;
}

/** A request, and the checked address that it goes to. */
export interface Order {
  readonly hop: Hop;
  readonly target: Target;
  readonly address: Address;
}

/**
 * Sends one request to one address and reads its answer.
 *
 * The socket is given the address and never the name, so nothing is resolved a second time, and
 * agents keep connections by that address: a name that moves gets another connection. Host header,
 * SNI and the check of the certificate use the name.
 */
export function exchange(order: Order, wires: Wires, signal: AbortSignal): Promise<Answer> {
  const { target } = order;
  const { options, clock } = wires;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const request = open(order, wires);
    let phase: EgressPhase = "connect";
    const end = (): void => {
      cancelConnect();
      signal.removeEventListener("abort", onAbort);
    };
    const fail = (error: unknown): void => {
      end();
      request.destroy();
      reject(error);
    };
    const onAbort = (): void => fail(signal.reason);
    const cancelConnect = clock.after(options.connectSeconds * 1_000, () =>
      fail(slowConnection(target, phase, options)),
    );
    signal.addEventListener("abort", onAbort, { once: true });
    watchConnection(request, target.isTls, (reached) => {
      phase = reached;
      if (reached === "request") cancelConnect();
    });
    // Who answers before everything was sent may stop listening: the answer counts all the same.
    const failUnanswered = (cause?: unknown): void => {
      if (phase !== "response") fail(failure(target, phase, options, cause));
    };
    request.on("error", failUnanswered);
    // An upgrade ends the request without an error, and a bare 101 is no answer: nobody asked.
    request.once("close", failUnanswered);
    request.once("response", (response) => {
      if (response.statusCode === 101) return failUnanswered();
      phase = "response";
      readAnswer(response, options.responseBytesMax).then(
        (answer) => {
          end();
          if (!request.writableFinished) request.destroy();
          resolve(answer);
        },
        (cause: unknown) => fail(failure(target, phase, options, cause)),
      );
    });
    request.end(order.hop.body);
  });
}

function open({ hop, target, address }: Order, wires: Wires): ClientRequest {
  const { body, method } = hop;
  const length = body === undefined ? undefined : String(body.byteLength);
  const common = {
    host: formatAddress(address),
    port: target.port,
    path: target.path,
    method,
    headers: {
      host: target.host,
      ...Object.fromEntries(hop.headers),
      ...(length === undefined ? {} : { "content-length": length }),
    },
    maxHeaderSize: wires.options.headerBytesMax,
  };
  if (!target.isTls) return httpRequest({ ...common, agent: wires.plain });
  // An address has no SNI; its certificate is checked against the address.
  const servername = target.literal === undefined ? target.hostname : "";
  return httpsRequest({ ...common, agent: wires.tls, servername });
}

function watchConnection(
  request: ClientRequest,
  isTls: boolean,
  onReached: (phase: "tls" | "request") => void,
): void {
  request.once("socket", (socket: Socket) => {
    if (request.reusedSocket) return onReached("request");
    socket.once("connect", () => onReached(isTls ? "tls" : "request"));
    if (isTls) socket.once("secureConnect", () => onReached("request"));
  });
}

/** Reads up to `bytesMax`. What is longer is cut there, and its connection is not used again. */
function readAnswer(response: IncomingMessage, bytesMax: number): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const answer = (isTruncated: boolean): void =>
      resolve({
        status: response.statusCode ?? 0,
        headers: headersOf(response),
        body: Buffer.concat(chunks).subarray(0, bytesMax),
        isTruncated,
      });
    response.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      bytes += chunk.byteLength;
      if (bytes <= bytesMax) return;
      answer(true);
      response.destroy();
    });
    response.once("end", () => answer(false));
    response.on("error", reject);
    response.once("close", () => reject(new Error("the connection was closed")));
  });
}

function headersOf({ headersDistinct }: IncomingMessage): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(headersDistinct).map(([name, values = []]) => [name, values.join(", ")]),
  );
}

function slowConnection(
  { origin }: Target,
  phase: EgressPhase,
  { connectSeconds }: ResolvedEgressOptions,
): EgressTimeoutError {
  return new EgressTimeoutError(
    phase,
    `${origin} took no connection within ${connectSeconds} s: ` +
      "see whether it can be reached, or raise connectSeconds",
  );
}

const FAILURES: Readonly<Record<EgressPhase, string>> = {
  resolve: "could not be resolved",
  connect: "could not be reached",
  tls: "could not agree on TLS; see whether its certificate is valid for this name",
  request: "closed the connection, or answered something that is not HTTP",
  response: "stopped in the middle of its answer",
};

function failure(
  { origin }: Target,
  phase: EgressPhase,
  { headerBytesMax }: ResolvedEgressOptions,
  cause: unknown,
): EgressFailedError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  // The parser keeps what it could not read, and a log would show it.
  if (cause instanceof Error) Reflect.deleteProperty(cause, "rawPacket");
  if (code === "HPE_HEADER_OVERFLOW") {
    const message = `${origin} answered with more than ${headerBytesMax} bytes of headers`;
    return new EgressFailedError("response", `${message}: raise headerBytesMax`, { cause });
  }
  const suffix = code === "" ? "" : ` (${code})`;
  return new EgressFailedError(phase, `${origin} ${FAILURES[phase]}${suffix}`, { cause });
}
