import { TidemillError } from "../../base/errors.ts";

/** Which rule of the guard a call broke. */
export type RefusalReason =
  | "url"
  | "scheme"
  | "credentials"
  | "port"
  | "host"
  | "address"
  | "redirect"
  | "request";

/** How far a call may have come: before "request" nothing of it was sent. */
export type EgressPhase = "resolve" | "connect" | "tls" | "request" | "response";

/**
 * Why an outbound call has no answer. Messages name the host at most: a path may carry a token,
 * an address would tell a tenant about the network of the server, and what the other side said is
 * not ours to pass on. `cause` has the details, for logs.
 */
export abstract class EgressError extends TidemillError {}

/**
 * The guard does not let the call out. Repeating it changes nothing: correct the target, or have
 * the operator allow it.
 */
export class EgressRefusedError extends EgressError {
  readonly code = "TM_EGRESS_REFUSED";
  readonly retryable = false;
  readonly reason: RefusalReason;
  /** The address that was refused, for the operator's log. */
  readonly address: string | undefined;

  constructor(reason: RefusalReason, message: string, options: RefusalOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.reason = reason;
    this.address = options.address;
  }
}

interface RefusalOptions extends ErrorOptions {
  readonly address?: string;
}

/** The network or the other side failed. The receiver may have acted if `phase` is a late one. */
export class EgressFailedError extends EgressError {
  readonly code: string = "TM_EGRESS_FAILED";
  readonly retryable = true;
  readonly phase: EgressPhase;

  constructor(phase: EgressPhase, message: string, options?: ErrorOptions) {
    super(message, options);
    this.phase = phase;
  }
}

/** The other side did not answer in time. It may have acted all the same. */
export class EgressTimeoutError extends EgressFailedError {
  override readonly code = "TM_EGRESS_TIMEOUT";
}
