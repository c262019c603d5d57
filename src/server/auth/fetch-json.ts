import { UnavailableError } from "../../base/errors.ts";
import type { EgressGuard } from "../../delivery/egress/guard.ts";
import type { FetchJson } from "./issuer-keys.ts";

/** Keys of issuers come through the egress guard, like every other answer from outside. */
export function fetchThrough(guard: EgressGuard): FetchJson {
  return async (url, { bytesMax, timeoutMs, signal }) => {
    const either = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const headers = { accept: "application/json" };
    const { status, body, isTruncated } = await guard.call({ url, headers }, either);
    if (status !== 200) throw new UnavailableError(`the answer has status ${status}, not 200`);
    if (isTruncated || body.length > bytesMax) {
      throw new UnavailableError(`the answer has more than ${bytesMax} bytes`);
    }
    return body.toString("utf8");
  };
}
