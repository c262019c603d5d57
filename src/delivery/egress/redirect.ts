import { EgressRefusedError } from "./errors.ts";
import type { Hop } from "./request.ts";
import type { Target } from "./target.ts";

const REDIRECTS = [301, 302, 303, 307, 308];
/** These keep method and body; the others mean "ask there with GET". */
const KEEPING = [307, 308];
/** What another origin may see. Anything else may be a credential under a name of its own. */
const HARMLESS = /^(accept(-.+)?|content-type|user-agent|webhook-(id|timestamp|signature))$/;

/** What an answer says about where to go instead, if it does. */
export function locationOf(
  status: number,
  headers: ReadonlyMap<string, string>,
): string | undefined {
  return REDIRECTS.includes(status) ? headers.get("location") : undefined;
}

/**
 * The request that a redirect asks for; its target is still to be checked. A body is never dropped
 * silently: the receiver of a GET would answer 200, and a delivery would count as made.
 */
export function nextHop(hop: Hop, from: Target, status: number, location: string): Hop {
  if (hop.body !== undefined && !KEEPING.includes(status)) {
    throw refused(from, `answered ${status}, which would drop the body: use the final address`);
  }
  let url: URL;
  try {
    url = new URL(location, from.href);
  } catch (cause) {
    throw refused(from, `answered ${status} with an address that cannot be read`, { cause });
  }
  if (from.isTls && url.protocol !== "https:") {
    throw refused(from, `answered ${status} to an address without TLS: use the final address`);
  }
  const isSameOrigin = url.origin === from.origin;
  const headers = [...hop.headers].filter(([name]) => isSameOrigin || HARMLESS.test(name));
  return { ...hop, url: url.href, headers: new Map(headers) };
}

/** The error of an answer that redirects once more than is allowed. */
export function tooManyRedirects(from: Target, status: number, max: number): EgressRefusedError {
  return max === 0
    ? refused(from, `answered ${status}, and redirects are refused: use the final address`)
    : refused(from, `answered ${status}, and redirectsMax allows ${max} redirects of one call`);
}

function refused(from: Target, what: string, options?: ErrorOptions): EgressRefusedError {
  return new EgressRefusedError("redirect", `${from.origin} ${what}`, options);
}
