import { systemClock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { refuseUnknown, requireNumber } from "../base/options.ts";
import type { Database, Queryable, Store } from "../db/database.ts";
import { TenantWall } from "../db/tenant-wall.ts";
import type { UrlGuard } from "../delivery/webhook-admin.ts";
import type { EnqueueContext } from "../tasks/enqueue.ts";
import type { QuotaKeeper } from "../tasks/quota-keeper.ts";
import { ResultWaiter } from "../tasks/results.ts";
import type { AdminChannels } from "../tasks/task-admin.ts";
import { type ScopeOptions, TenantScope } from "./tenant-scope.ts";

const QUEUES_MAX = 200;
const KEYS = ["requireWall", "queuesPerTenantMax", "quotas", "urlGuard", "targetGuard"];

export interface TenantsOptions {
  /** Refuses to go on without the second wall. Defaults to false: its absence is logged. */
  readonly requireWall?: boolean;
  /** Queues that one tenant may name before anybody defined them. Defaults to 200. */
  readonly queuesPerTenantMax?: number;
  /** Keeps tenants within their quotas; whoever made it runs it. Defaults to none. */
  readonly quotas?: QuotaKeeper;
  /** Refuses addresses of webhooks that can never be called. Defaults to none. */
  readonly urlGuard?: UrlGuard;
  /** The same for targets of tasks. Defaults to none. */
  readonly targetGuard?: UrlGuard;
}

interface TenantLimits {
  readonly queuesMax: number;
  readonly quotas: QuotaKeeper | undefined;
  readonly urlGuard: UrlGuard | undefined;
  readonly targetGuard: UrlGuard | undefined;
}

export interface TenantsContext {
  readonly db: Database;
  readonly enqueue: EnqueueContext;
  readonly channels: AdminChannels;
  readonly logger: Logger;
  readonly onEnqueued: (queue: string, count: number) => void;
}

/** Scopes of tenants over one database. Whoever opened it closes it. */
export class Tenants {
  /** The whole database, for what concerns no tenant, such as who is calling. */
  readonly db: Queryable;
  /** The role behind which tenants are kept apart, if there is a second wall. */
  readonly wall: string | undefined;
  readonly #context: TenantsContext;
  readonly #storeOf: (tenant: string) => Store;
  readonly #results: ResultWaiter;
  readonly #limits: TenantLimits;

  constructor(context: TenantsContext, wall: TenantWall | undefined, limits: TenantLimits) {
    this.db = context.db;
    this.wall = wall?.role;
    this.#context = context;
    this.#limits = limits;
    this.#storeOf = (tenant) => wall?.behind(tenant) ?? context.db;
    this.#results = new ResultWaiter((tenant) => this.#storeOf(tenant ?? ""), systemClock);
  }

  /** Cheap: made for every request. */
  of(options: ScopeOptions): TenantScope {
    const { enqueue, channels, onEnqueued } = this.#context;
    const store = this.#storeOf(options.tenant);
    return new TenantScope(
      { store, enqueue, channels, onEnqueued, results: this.#results, ...this.#limits },
      options,
    );
  }

  /** For tables of a server's own, which have a tenant as well. */
  store(tenant: string): Store {
    return this.#storeOf(tenant);
  }

  /** Ends every wait for a result. */
  close(): void {
    this.#results.close();
  }
}

export async function openTenants(
  context: TenantsContext,
  options: TenantsOptions,
): Promise<Tenants> {
  refuseUnknown("tenants", options, KEYS);
  const { requireWall = false, queuesPerTenantMax = QUEUES_MAX } = options;
  const range = { min: 0, max: 100_000, integer: true };
  const queuesMax = requireNumber("queuesPerTenantMax", queuesPerTenantMax, range);
  const { quotas, urlGuard, targetGuard } = options;
  const limits = { queuesMax, quotas, urlGuard, targetGuard };
  const found = await TenantWall.find(context.db);
  if (found instanceof TenantWall) return new Tenants(context, found, limits);
  if (requireWall) throw new ConfigError(found);
  context.logger.warn({ reason: found }, "tenants are kept apart by statements only");
  return new Tenants(context, undefined, limits);
}
