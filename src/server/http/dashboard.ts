import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { StaticFiles } from "./static-files.ts";

/** Beside what is compiled; of the sources, what was built last. */
const BUILT = new URL("../../../dist/dashboard/", import.meta.url);

/**
 * The page may load what comes from here and nothing else. There is nothing inline, so that a text
 * that somebody smuggled into the page does not run.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const PAGE = "/index.html";
/** Paths of the server itself are never pages. */
const NO_PAGE = /^\/(v1|openapi\.json|docs|healthz|readyz|metrics|assets)(\/|$)/;

/** The dashboard: files that were built beforehand, and one page for all places in it. */
export class Dashboard {
  readonly #files: StaticFiles;

  constructor(folder: string) {
    this.#files = new StaticFiles(folder);
    if (!this.#files.has(PAGE)) throw new Error(`${folder} has no ${PAGE}`);
  }

  /** Undefined when it was not built, as in a checkout in which nobody did. */
  static find(folder: string = fileURLToPath(BUILT)): Dashboard | undefined {
    return existsSync(join(folder, PAGE)) ? new Dashboard(folder) : undefined;
  }

  /** Undefined when the request is not for the dashboard. */
  answer(request: Request): Response | undefined {
    if (request.method !== "GET" && request.method !== "HEAD") return undefined;
    const { pathname } = new URL(request.url);
    const path = pathname === "/" ? PAGE : pathname;
    const response =
      this.#files.answer(path, request.headers) ??
      (isPage(pathname, request.headers) ? this.#files.answer(PAGE, request.headers) : undefined);
    if (response === undefined) return undefined;
    response.headers.set("content-security-policy", POLICY);
    response.headers.set("cross-origin-opener-policy", "same-origin");
    response.headers.set("permissions-policy", "camera=(), geolocation=(), microphone=()");
    if (request.method === "GET") return response;
    return new Response(null, { status: response.status, headers: response.headers });
  }
}

/** A place in the dashboard that somebody typed, bookmarked or loaded again. */
function isPage(pathname: string, headers: Headers): boolean {
  if (NO_PAGE.test(pathname) || pathname.split("/").at(-1)?.includes(".") === true) return false;
  return headers.get("accept")?.includes("text/html") === true;
}
