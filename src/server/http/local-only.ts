import { ForbiddenError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { isLoopback } from "../loopback.ts";
import { refuse } from "./answering.ts";
import { requestIdOf } from "./gate.ts";

type Fetch = (request: Request) => Promise<Response>;

/**
 * For a server without tokens. It listens on loopback only, but the browser of this machine reaches
 * it for every page that it shows: pages of other origins, and names that were made to resolve to
 * this machine, are refused.
 */
export function localOnly(fetch: Fetch, logger: Logger): Fetch {
  return async (request) => {
    if (isFromHere(request)) return await fetch(request);
    const error = new ForbiddenError("without tokens, only programs of this machine are served");
    return refuse(error, requestIdOf(request.headers), { errors: "problem", logger });
  };
}

function isFromHere({ url, headers }: Request): boolean {
  const { hostname, host } = new URL(url);
  const origin = headers.get("origin");
  const site = headers.get("sec-fetch-site") ?? "none";
  const isSame = origin === null || (URL.canParse(origin) && new URL(origin).host === host);
  return isLoopback(hostname) && isSame && (site === "none" || site === "same-origin");
}
