import type { UnauthenticatedError } from "../../base/errors.ts";
import type { StreamError } from "../grpc/peer.ts";
import type { Assignment } from "./assignment.ts";

/** How tasks are told to one kind of worker. */
export interface Voice {
  /**
   * Whether an order stands until all of it was served, and those of the same queues are one.
   * Otherwise it is served once, with whatever there is.
   */
  readonly keepsOrders: boolean;
  /** What a task takes in a message, at most, beside what is known of it. */
  readonly frameBytes: number;
  tasks(assignments: readonly Assignment[]): void;
  /** The task is no longer the worker's. */
  lost(assignment: Assignment, why: Error): void;
  /** The leases last longer now. */
  renewed(assignments: readonly Assignment[]): void;
  /** How the stream ends when its token is not good, or not any more. */
  unauthenticated(error: UnauthenticatedError): StreamError;
}
