import { getEventListeners } from "node:events";
import { expect, onTestFinished } from "vitest";
import { EgressError } from "../../src/delivery/egress/errors.ts";
import { EgressGuard, type EgressResponse } from "../../src/delivery/egress/guard.ts";
import type { EgressOptions } from "../../src/delivery/egress/options.ts";
import type { EgressRequest } from "../../src/delivery/egress/request.ts";
import { ManualClock } from "./manual-clock.ts";

export interface EgressScene {
  readonly guard: EgressGuard;
  readonly clock: ManualClock;
  /** Names that were resolved, in order. */
  readonly resolved: string[];
  /** Calls, and checks afterwards that no wait or listener was left. */
  call(request: EgressRequest | string): Promise<EgressResponse>;
  /** The error of a call that must have one. */
  failureOf(request: EgressRequest | string): Promise<EgressError>;
  /** Aborts the calls of this scene. */
  abort(reason: unknown): void;
}

/**
 * A guard on a clock that stands still, for which `hooks.test` is 127.0.0.1 and allowed. Other
 * addresses of this machine are as forbidden as anywhere.
 */
export function egressScene(options: EgressOptions): EgressScene {
  const clock = new ManualClock();
  const resolved: string[] = [];
  const { resolve = async () => ["127.0.0.1"], ...others } = options;
  const guard = new EgressGuard(
    {
      allowHttp: true,
      allowHosts: ["hooks.test"],
      resolve: (hostname) => {
        resolved.push(hostname);
        return resolve(hostname);
      },
      ...others,
    },
    clock,
  );
  onTestFinished(() => guard.close());
  const ending = new AbortController();
  const call = async (request: EgressRequest | string): Promise<EgressResponse> => {
    const given = typeof request === "string" ? { url: request } : request;
    try {
      return await guard.call(given, ending.signal);
    } finally {
      expect(clock.pending).toBe(0);
      expect(getEventListeners(ending.signal, "abort")).toEqual([]);
    }
  };
  return {
    guard,
    clock,
    resolved,
    call,
    async failureOf(request) {
      const error = await call(request).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      if (error instanceof EgressError) return error;
      throw new Error("the call did not fail as it should", { cause: error });
    },
    abort: (reason) => ending.abort(reason),
  };
}
