import type { z } from "@hono/zod-openapi";
import { InvalidInputError, UnauthenticatedError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { uuidv7 } from "../../base/uuid.ts";
import type { Tenants } from "../../worker/tenants.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { type Authenticator, bearerOf } from "../auth/authenticator.ts";
import { type Caller, mayOnSome, requireMay } from "../auth/caller.ts";
import type { BodyRoom } from "./body-room.ts";
import type { Call, Endpoint } from "./endpoint.ts";
import { readJson } from "./json-body.ts";
import type { ResolvedHttpLimits } from "./options.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import { readBody } from "./request-body.ts";
import type { Waits } from "./waits.ts";

export interface GateContext {
  readonly mill: Tidemill;
  readonly tenants: Tenants;
  readonly authenticator: Authenticator;
  readonly limits: ResolvedHttpLimits;
  readonly limiter: RateLimiter;
  readonly waits: Waits;
  readonly logger: Logger;
}

type Texts = Readonly<Record<string, string>>;

export interface Arrival {
  readonly request: Request;
  readonly params: Texts;
  readonly requestId: string;
  /** For what the caller says; given back when the call has ended. */
  readonly room: BodyRoom;
}

/**
 * Lets a request in, in this order: who is calling, how often, may they, and only then what they
 * say.
 */
export async function letIn(
  context: GateContext,
  endpoint: Endpoint,
  arrival: Arrival,
): Promise<Call<unknown, unknown, unknown>> {
  const { request, params, requestId } = arrival;
  const { headers, signal } = request;
  const caller = await authenticate(context, headers, requestId);
  context.limiter.take(caller.tenant);
  requireAct(caller, endpoint);
  const { tenant, queues } = caller;
  const call = {
    caller,
    scope: context.tenants.of({ tenant, queues }),
    params: check("path", endpoint.params, params),
    query: check("query", endpoint.query, queryOf(request)),
    body: await bodyOf(context, endpoint, arrival, tenant),
    headers,
    requestId,
    isHead: request.method === "HEAD",
    signal,
  };
  if (request.method === "GET") await awaitConsumer(context, caller, request);
  return call;
}

async function authenticate(
  { authenticator, logger }: GateContext,
  headers: Headers,
  requestId: string,
): Promise<Caller> {
  try {
    return await authenticator.authenticate(bearerOf(headers.get("authorization") ?? undefined));
  } catch (error) {
    if (error instanceof UnauthenticatedError) {
      const { reason, detail } = error;
      logger.info({ requestId, reason, detail }, "a caller was refused");
    }
    throw error;
  }
}

/** What concerns the cluster concerns all queues; elsewhere the endpoint looks at the queue. */
function requireAct(caller: Caller, { act }: Endpoint): void {
  if (act.startsWith("cluster.") || !mayOnSome(caller, act)) requireMay(caller, act);
}

function queryOf(request: Request): Texts {
  const query: Record<string, string> = {};
  for (const [name, value] of new URL(request.url).searchParams) {
    if (Object.hasOwn(query, name)) throw new InvalidInputError(`query: ${name} is given twice`);
    Object.defineProperty(query, name, { value, enumerable: true });
  }
  return query;
}

async function bodyOf(
  { limits }: GateContext,
  endpoint: Endpoint,
  { request, room }: Arrival,
  tenant: string,
): Promise<unknown> {
  if (endpoint.body === undefined) return undefined;
  const take = (bytes: number): void => room.take(tenant, bytes);
  const text = await readBody(request, { bytesMax: limits.bodyBytesMax, take });
  try {
    if (text === undefined && endpoint.isBodyOptional !== true) {
      throw new InvalidInputError("the request has no body");
    }
    const given = readJson(text ?? "{}", {
      depthMax: limits.jsonDepthMax,
      keysMax: limits.jsonKeysMax,
      verbatim: endpoint.verbatim ?? [],
    });
    return check("body", endpoint.body, given);
  } catch (error) {
    // What clients of CodeQ look for.
    if (endpoint.errors === "codeq") throw new InvalidInputError("invalid body");
    throw error;
  }
}

const ISSUES_SHOWN = 5;

function check(what: string, schema: z.ZodType | undefined, given: unknown): unknown {
  if (schema === undefined) {
    const [unknown] = Object.keys(given ?? {});
    if (unknown !== undefined) throw new InvalidInputError(`${what}: unknown "${unknown}"`);
    return undefined;
  }
  const result = schema.safeParse(given);
  if (result.success) return result.data;
  const issues = result.error.issues.slice(0, ISSUES_SHOWN).map(({ path, message }) => {
    const place = path.map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`));
    return `${what}${place.join("")}: ${message}`;
  });
  throw new InvalidInputError(issues.join("; "));
}

const WAIT_FOR = /^(.{1,600})@(\d{1,18})$/;

/** Reads that follow an append may say whose view must contain it. */
async function awaitConsumer(
  { mill, limits, waits }: GateContext,
  caller: Caller,
  { headers, signal }: Request,
): Promise<void> {
  const header = headers.get("x-wait-for");
  if (header === null) return;
  requireMay(caller, "cluster.read");
  const [, name, token] = WAIT_FOR.exec(header) ?? [];
  if (name === undefined || token === undefined) {
    throw new InvalidInputError(
      "x-wait-for must be <consumer>@<token>, with the token that an append returned",
    );
  }
  const timeoutMs = limits.waitForSecondsMax * 1000;
  await waits.during(caller.tenant, () =>
    mill.waitFor(decoded(name), { position: BigInt(token) }, { timeoutMs, signal }),
  );
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new InvalidInputError("x-wait-for: the consumer is not percent-encoded as it should be");
  }
}

/** The caller's own, if it can be written anywhere, else a new one. */
export function requestIdOf(headers: Headers): string {
  const given = headers.get("x-request-id") ?? "";
  return /^[\w.:/+=@-]{1,128}$/.test(given) ? given : uuidv7();
}
