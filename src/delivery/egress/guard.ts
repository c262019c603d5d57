import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type Address, parseAddress } from "./address.ts";
import { EgressFailedError, EgressRefusedError, EgressTimeoutError } from "./errors.ts";
import { type Answer, exchange, type Wires } from "./exchange.ts";
import { type EgressOptions, resolveEgressOptions } from "./options.ts";
import { locationOf, nextHop, tooManyRedirects } from "./redirect.ts";
import { type EgressRequest, firstHop, type Hop } from "./request.ts";
import { readTarget, refuseDenied, type Target } from "./target.ts";

/** Connections of one address that wait for the next call. */
const IDLE_CONNECTIONS_MAX = 8;
/** A name may have hundreds of addresses; a call that fails at these fails. */
const ADDRESSES_TRIED_MAX = 4;

export interface EgressResponse extends Answer {
  /** Where the answer came from, after redirects. */
  readonly url: string;
}

/**
 * The only way out: every HTTP call to an address that somebody gave us goes through one of these,
 * so that no such address reaches the server's own machine or network.
 *
 * A call is checked in this order, and nothing is sent before all of it passed: the request, the
 * text of the address, every address that the name resolves to. Then it goes to one of exactly
 * those addresses, so a name that resolves differently a moment later changes nothing. A redirect
 * is refused, or begins again at the top. Proxies that the environment names are not used: they
 * would resolve the name once more.
 */
export class EgressGuard implements Disposable {
  readonly #wires: Wires;

  constructor(options: EgressOptions = {}, clock: Clock = systemClock) {
    const resolved = resolveEgressOptions(options);
    const { idleSeconds, ca } = resolved;
    const shared = {
      keepAlive: idleSeconds > 0,
      maxFreeSockets: IDLE_CONNECTIONS_MAX,
      ...(idleSeconds > 0 ? { timeout: idleSeconds * 1_000 } : {}),
    };
    // Said aloud, so that no variable of the environment turns the check off.
    const trust = { rejectUnauthorized: true, ...(ca === undefined ? {} : { ca: [...ca] }) };
    this.#wires = {
      options: resolved,
      clock,
      plain: new HttpAgent(shared),
      tls: new HttpsAgent({ ...shared, ...trust }),
    };
  }

  /**
   * Refuses a target that can never be called, for those who are about to store one. That it
   * passes is no promise: what its name resolves to is checked with each call.
   */
  check(url: string): void {
    readTarget(url, this.#wires.options);
  }

  /**
   * Calls and reads the answer, whatever its status. Throws an `EgressError` if there is none, and
   * the reason of `signal` if that aborts.
   */
  async call(request: EgressRequest, signal: AbortSignal): Promise<EgressResponse> {
    const { options, clock } = this.#wires;
    signal.throwIfAborted();
    const hop = firstHop(request, options);
    const { origin } = readTarget(hop.url, options);
    const ending = new AbortController();
    const onAbort = (): void => ending.abort(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    const cancel = clock.after(options.callSeconds * 1_000, () => {
      const message =
        `${origin} did not answer within ${options.callSeconds} s: ` +
        "let it answer first and work later, or raise callSeconds";
      ending.abort(new EgressTimeoutError("response", message));
    });
    try {
      return await this.#follow(hop, ending.signal);
    } finally {
      cancel();
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Closes idle connections. Calls under way fail. */
  close(): void {
    this.#wires.plain.destroy();
    this.#wires.tls.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #follow(first: Hop, signal: AbortSignal): Promise<EgressResponse> {
    const { options } = this.#wires;
    let hop = first;
    for (let followed = 0; ; followed += 1) {
      const target = readTarget(hop.url, options);
      const addresses = await this.#addressesOf(target, signal);
      const answer = await this.#send(hop, target, addresses, signal);
      const location = locationOf(answer.status, answer.headers);
      if (location === undefined) return { ...answer, url: target.href };
      if (followed >= options.redirectsMax) {
        throw tooManyRedirects(target, answer.status, options.redirectsMax);
      }
      hop = nextHop(hop, target, answer.status, location);
    }
  }

  /** Resolves once and checks every address: one bad apple among them spoils the name. */
  async #addressesOf(target: Target, signal: AbortSignal): Promise<readonly Address[]> {
    if (target.literal !== undefined) return [target.literal];
    const { options } = this.#wires;
    const { hostname, origin } = target;
    let texts: readonly string[];
    try {
      texts = await beforeAbort(options.resolve(hostname), signal);
    } catch (cause) {
      signal.throwIfAborted();
      throw new EgressFailedError("resolve", `${origin} could not be resolved`, { cause });
    }
    if (texts.length === 0) throw new EgressFailedError("resolve", `${origin} has no address`);
    return texts.map((text) => {
      const address = parseAddress(text);
      if (address === undefined) {
        const message = `${origin} resolves to something that is no address`;
        throw new EgressRefusedError("address", message, { address: text });
      }
      refuseDenied(address, target, options);
      return address;
    });
  }

  /** Tries the next address only while nothing was sent. */
  async #send(
    hop: Hop,
    target: Target,
    addresses: readonly Address[],
    signal: AbortSignal,
  ): Promise<Answer> {
    const tried = addresses.slice(0, ADDRESSES_TRIED_MAX);
    for (const [index, address] of tried.entries()) {
      try {
        return await exchange({ hop, target, address }, this.#wires, signal);
      } catch (error) {
        const isUnreached = error instanceof EgressFailedError && error.phase === "connect";
        if (!isUnreached || index === tried.length - 1) throw error;
      }
    }
    throw new EgressFailedError("resolve", `${target.origin} has no address`);
  }
}

/** Rejects with the reason of the signal as soon as it aborts; the work goes on unheard. */
function beforeAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    if (signal.aborted) onAbort();
  });
}
