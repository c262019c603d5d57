import type { z } from "@hono/zod-openapi";
import type { TenantScope } from "../../worker/tenant-scope.ts";
import type { Act, Caller } from "../auth/caller.ts";

/** What an endpoint is told of a request that was let in. */
export interface Call<Params, Query, Body> {
  readonly caller: Caller;
  /** What the caller's tenant may do. */
  readonly scope: TenantScope;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly headers: Headers;
  readonly requestId: string;
  /** Whether only the headers of the answer are asked for. */
  readonly isHead: boolean;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

export interface Answer {
  readonly status: number;
  /** Written as JSON. Undefined for none. */
  readonly body?: unknown;
  /** Sent as it comes, instead of a body. */
  readonly stream?: ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface AnswerNote {
  readonly description: string;
  readonly schema?: z.ZodType;
  /** Defaults to application/json. */
  readonly type?: string;
}

export type Method = "get" | "post" | "put" | "delete";

/** How errors look: ours, or those that clients of CodeQ know. */
export type ErrorStyle = "problem" | "codeq";

interface Described {
  readonly method: Method;
  /** With parameters as in "/v1/tasks/:id". */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  /** What the caller must be allowed to do, on some queue at least. */
  readonly act: Act;
  readonly errors?: ErrorStyle;
  /** Members of the body that stay as they were written. */
  readonly verbatim?: readonly string[];
  /** Whether programs call it all day, so that nobody wants it among what people did. */
  readonly isRoutine?: true;
  /** Whether the body may be left out, as if it were {}. */
  readonly isBodyOptional?: boolean;
  readonly answers: Readonly<Record<number, AnswerNote>>;
}

/** An endpoint whatever its types: what serves and describes it. */
export interface Endpoint extends Described {
  readonly params: z.ZodObject | undefined;
  readonly query: z.ZodObject | undefined;
  readonly body: z.ZodType | undefined;
  readonly headers: z.ZodObject | undefined;
  readonly handle: (call: Call<unknown, unknown, unknown>) => Promise<Answer>;
}

interface Typed<Params, Query, Body> extends Described {
  readonly params?: z.ZodObject & z.ZodType<Params>;
  readonly query?: z.ZodObject & z.ZodType<Query>;
  readonly body?: z.ZodType<Body>;
  /** For the description only. */
  readonly headers?: z.ZodObject;
  readonly handle: (call: Call<Params, Query, Body>) => Promise<Answer>;
}

/**
 * Declares one way to call the server. What it gets has passed its schemas, which is why the types
 * may be taken off here.
 */
export function endpoint<Params = undefined, Query = undefined, Body = undefined>(
  typed: Typed<Params, Query, Body>,
): Endpoint {
  const { params, query, body, headers, handle, ...described } = typed;
  return {
    ...described,
    params,
    query,
    body,
    headers,
    handle: (call) => handle(call as Call<Params, Query, Body>),
  };
}
