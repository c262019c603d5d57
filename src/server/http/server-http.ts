import type { Logger } from "../../base/log.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Tenants } from "../../worker/tenants.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { Auth } from "../auth/create.ts";
import type { Feed } from "../feed/feed.ts";
import type { TlsOptions } from "../grpc/tls.ts";
import type { ResolvedListen } from "../options.ts";
import { createHttpApi, type HttpApi } from "./api.ts";
import type { ClaimDesk } from "./claim-desk.ts";
import { Dashboard } from "./dashboard.ts";
import type { Endpoint } from "./endpoint.ts";
import { HttpListener, type ListenerContext } from "./listener.ts";
import type { HttpLimits } from "./options.ts";

export interface ServerHttpParts {
  readonly tls: TlsOptions | undefined;
  readonly drainSeconds: number;
  readonly logger: Logger;
}

/** What a server serves beside its own, such as a demo. */
export interface ServerExtras {
  readonly endpoints?: readonly Endpoint[];
  /** Pages of the dashboard that they are for. */
  readonly pages?: readonly string[];
}

export interface ApiParts {
  readonly mill: Tidemill;
  readonly auth: Auth;
  readonly desk: ClaimDesk & { drain(): void };
  readonly feed: Feed;
  readonly tokenCheckMs: number;
  /** Whether there is one; as a text, where it lies. */
  readonly dashboard: boolean | string;
  readonly logger: Logger;
  readonly httpLimits: HttpLimits;
  readonly extras: ServerExtras;
}

/** What a server answers by HTTP, in its name. */
export function apiOf(tenants: Tenants, { auth, httpLimits, extras, ...parts }: ApiParts): HttpApi {
  const { authenticator } = auth;
  const { mill, desk, feed, tokenCheckMs, logger } = parts;
  const served = { mill, tenants, authenticator, desk, feed, tokenCheckMs, logger };
  const dashboard = findDashboard(parts);
  const api = createHttpApi(
    { ...served, ...extras, ...(dashboard === undefined ? {} : { dashboard }) },
    httpLimits,
  );
  const drain = (): void => {
    api.drain();
    desk.drain();
    feed.drain();
  };
  return { ...api, drain };
}

function findDashboard({
  dashboard: wanted,
  logger,
}: Pick<ApiParts, "dashboard" | "logger">): Dashboard | undefined {
  if (wanted === false) return undefined;
  if (typeof wanted === "string") return new Dashboard(wanted);
  const found = Dashboard.find();
  if (found === undefined) logger.info({}, "there is no dashboard: it was not built");
  return found;
}

type Answers = Pick<ListenerContext, "fetch" | "isExclusive"> & { readonly drain?: () => void };

/** One port of a server on which HTTP is spoken. */
export class ServerHttp implements Service {
  readonly name: string;
  readonly #listener: HttpListener;
  readonly #host: string;
  #port = 0;

  constructor(name: string, at: ResolvedListen, parts: ServerHttpParts & Answers) {
    const { tls, drainSeconds, logger, fetch, isExclusive = false, drain } = parts;
    this.name = name;
    this.#host = at.host;
    const secure = tls === undefined ? {} : { tls };
    const onDrain = drain === undefined ? {} : { onDrain: drain };
    const context = { name, fetch, logger, isExclusive, ...onDrain };
    this.#listener = new HttpListener({ ...at, ...secure, drainSeconds }, context);
  }

  /** Where it listens, once it does. */
  get address(): { readonly host: string; readonly port: number } {
    return { host: this.#host, port: this.#port };
  }

  async listen(): Promise<void> {
    this.#port = await this.#listener.listen();
  }

  /** Says at /readyz that it will go. It answers until it is stopped. */
  drain(): void {
    this.#listener.drain();
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#listener.run(signal);
  }
}
