import { withoutUndefined } from "../base/options.ts";
import type { HttpCall, HttpMethod } from "../tasks/http-call.ts";

/** What is called, and how. */
export interface HttpFlags {
  readonly targetUrl?: string;
  readonly method?: HttpMethod;
  readonly header?: Readonly<Record<string, string>>;
  readonly expectedStatus?: readonly number[];
  readonly endpoint?: string;
}

/** Nothing when none was given. */
export function callOf(flags: HttpFlags): { readonly http?: HttpCall } {
  const { targetUrl, method, header: headers, expectedStatus, endpoint } = flags;
  const http = withoutUndefined({ targetUrl, method, headers, expectedStatus, endpoint });
  return Object.keys(http).length === 0 ? {} : { http };
}
