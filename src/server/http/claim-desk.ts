import type { JsonText } from "../../base/json-text.ts";
import type { Task } from "../../tasks/task.ts";
import type { Caller } from "../auth/caller.ts";

/** What every act on a claimed task is compared with, as callers carry it around. */
export interface ClaimToken {
  readonly taskId: string;
  readonly generation: number;
  readonly claimId: string;
}

export interface ClaimRequest {
  readonly tenant: string;
  /** Who claims, as its token says: the only one who may act on the task without a claim token. */
  readonly holder: string;
  /** Of which queues; "all" for whatever the tenant has. */
  readonly queues: "all" | readonly string[];
  /** At most so many, at least one. */
  readonly count: number;
  /** Undefined for the default of the desk. */
  readonly leaseSeconds: number | undefined;
  /** How long to wait for the first; 0 for not at all. */
  readonly waitMs: number;
}

/** A task that somebody outside holds. Its payload is JSON as it was written, or bytes. */
export interface HeldTask extends Omit<Task<JsonText | undefined>, "bytes"> {
  readonly bytes: Buffer | undefined;
  readonly token: ClaimToken;
  /** Who holds it, as the database has it. */
  readonly holder: string;
  readonly claimedAt: Date;
  readonly leaseUntil: Date;
  readonly webhook: string | undefined;
}

/** Of a nack: when the task comes back, or that it will not. */
export interface NackAnswer {
  readonly delaySeconds: number;
  readonly isDead: boolean;
}

/** Why a holder has no claim on a task. */
export type NoClaim = "not-found" | "not-owner" | "not-in-progress";

/**
 * Where those who are no workers of the cluster claim tasks and say how they ended. Every act names
 * the caller and is compared with the whole token; one that does not fit throws LeaseLostError, and
 * so does a task of another tenant; a queue that the caller is not for throws ForbiddenError.
 * Nothing is known to the desk that the database does not know: any server may be asked.
 */
export interface ClaimDesk {
  /** Empty when there was nothing in time. */
  claim(request: ClaimRequest, signal: AbortSignal): Promise<HeldTask[]>;
  complete(caller: Caller, token: ClaimToken, result: JsonText | undefined): Promise<void>;
  /** Retried by the queue's policy, unless `retry` is false. */
  fail(caller: Caller, token: ClaimToken, failure: Failure): Promise<void>;
  nack(caller: Caller, token: ClaimToken, nack: Nack): Promise<NackAnswer>;
  abandon(caller: Caller, token: ClaimToken): Promise<void>;
  /** Holds the lease so long from now; undefined for the default. */
  extend(caller: Caller, token: ClaimToken, seconds: number | undefined): Promise<Date>;
  /** The claim that the holder has on the task, for callers that carry no token. */
  find(tenant: string, holder: string, taskId: string): Promise<ClaimToken | NoClaim>;
}

export interface Failure {
  readonly reason: string;
  readonly retry: boolean;
}

export interface Nack {
  /** Undefined for the queue's backoff. */
  readonly delaySeconds: number | undefined;
  readonly reason: string | undefined;
}
