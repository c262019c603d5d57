import type { ConnectOptions, Logger, Tidemill } from "../../../src/index.ts";
import { BearerAuthenticator } from "../../../src/server/auth/authenticator.ts";
import type { Scope } from "../../../src/server/auth/caller.ts";
import { StaticTokens } from "../../../src/server/auth/static-tokens.ts";
import { createHttpApi, type HttpApi, type HttpApiContext } from "../../../src/server/http/api.ts";
import type { HttpLimits } from "../../../src/server/http/options.ts";
import type { Tenants } from "../../../src/worker/tenants.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";

/** Tokens are as good as passwords: long. These are told apart by their beginning. */
const secret = (name: string): string => `${name}-${"0123456789abcdef".repeat(3)}`;

export type Who = "producer" | "reader" | "worker" | "admin" | "mailer" | "other" | "otherAdmin";

const GRANTS: Readonly<
  Record<Who, { tenant: string; scopes: readonly Scope[]; queues?: readonly string[] }>
> = {
  producer: { tenant: "acme", scopes: ["producer"] },
  reader: { tenant: "acme", scopes: ["read"] },
  worker: { tenant: "acme", scopes: ["worker"] },
  admin: { tenant: "acme", scopes: ["admin"] },
  mailer: { tenant: "acme", scopes: ["producer", "read"], queues: ["mails"] },
  other: { tenant: "globex", scopes: ["producer", "read", "worker"] },
  otherAdmin: { tenant: "globex", scopes: ["admin"] },
};

/** What was logged, each line as it came. */
export class Log implements Logger {
  readonly lines: { level: string; fields: object; message: string }[] = [];

  readonly #at =
    (level: string) =>
    (fields: object, message: string): void =>
      void this.lines.push({ level, fields, message });

  readonly debug = this.#at("debug");
  readonly info = this.#at("info");
  readonly warn = this.#at("warn");
  readonly error = this.#at("error");
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Parsed, if it is JSON. */
  readonly body: Body;
}

/** Members of answers, whichever it is. */
export interface Body {
  readonly [member: string]: unknown;
  readonly id: string;
  readonly ids: readonly string[];
  readonly cursor: string | undefined;
  readonly token: string;
  readonly positions: readonly string[];
  readonly tasks: readonly { readonly id: string; readonly queue: string }[];
  readonly deadLetters: readonly { readonly id: string }[];
  readonly queues: readonly { readonly name: string }[];
  readonly consumers: readonly { readonly name: string }[];
}

export interface CallOptions {
  readonly as?: Who;
  /** Sent as it is. */
  readonly text?: string;
  readonly json?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly tenants: Tenants;
  readonly api: HttpApi;
  readonly log: Log;
  readonly call: (method: string, path: string, options?: CallOptions) => Promise<Reply>;
  /** Another server over the same database. */
  readonly another: (limits: HttpLimits, context?: Partial<HttpApiContext>) => Scene;
}

export interface SceneOptions {
  readonly until?: "test" | "file";
  readonly limits?: HttpLimits;
  readonly connect?: ConnectOptions;
  readonly context?: Partial<HttpApiContext>;
}

export const authenticator = new BearerAuthenticator([
  new StaticTokens(
    Object.entries(GRANTS).map(([name, grant]) => ({ token: secret(name), ...grant })),
  ),
]);

export const bearer = (who: Who): string => `Bearer ${secret(who)}`;

export async function openScene(options: SceneOptions = {}): Promise<Scene> {
  const { until = "file", limits = {}, connect = {} } = options;
  const database = await testDatabase({ until });
  const log = new Log();
  const mill = await database.connect({ ...connect, logger: log });
  const tenants = await mill.tenants({ requireWall: true });
  return sceneOf({ database, mill, tenants, log }, limits, options.context);
}

export function sceneOf(
  parts: Pick<Scene, "database" | "mill" | "tenants" | "log">,
  limits: HttpLimits,
  context: Partial<HttpApiContext> = {},
): Scene {
  const { mill, tenants, log } = parts;
  const api = createHttpApi({ mill, tenants, authenticator, logger: log, ...context }, limits);
  return {
    ...parts,
    api,
    call: (method, path, given) => callApi(api, method, path, given),
    another: (other, more = {}) => sceneOf(parts, other, { ...context, ...more }),
  };
}

async function callApi(
  { fetch }: HttpApi,
  method: string,
  path: string,
  { as = "producer", text, json, headers = {}, signal }: CallOptions = {},
): Promise<Reply> {
  const body = text ?? (json === undefined ? undefined : JSON.stringify(json));
  const request = new Request(`http://tidemill.test${path}`, {
    method,
    headers: {
      authorization: bearer(as),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body }),
    ...(signal === undefined ? {} : { signal }),
  });
  const response = await fetch(request);
  const answer = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json") === true;
  return {
    status: response.status,
    headers: response.headers,
    text: answer,
    body: (isJson ? JSON.parse(answer) : {}) as Body,
  };
}
