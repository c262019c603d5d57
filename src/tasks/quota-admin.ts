import { LimitError } from "../base/errors.ts";
import type { Queryable } from "../db/database.ts";
import { type Amount, checkQuota, type Quota, type QuotaChanges } from "./quota.ts";
import { deleteQuota, putQuota, readQuotas, readUsage, type TenantQuota } from "./sql/quotas.ts";

/** A quota, and what is counted against it. */
export interface QuotaView extends TenantQuota {
  /** Of what was stored by servers since there is a quota. */
  readonly used: Amount;
}

/** More would be read by every server every two seconds. */
const QUOTAS_MAX = 10_000;
const NONE: Quota = { pendingTasks: null, pendingBytes: null, rate: null };

/** What people do with quotas of tenants. Servers follow within two seconds. */
export class QuotaAdmin {
  readonly #db: Queryable;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** Of all tenants that have one, by name. */
  async list(): Promise<TenantQuota[]> {
    return await readQuotas(this.#db);
  }

  /** Of a tenant without one, all of it is null. Counts the tenant's tasks. */
  async get(tenant: string): Promise<QuotaView> {
    checkQuota(tenant, {});
    // Compared once more: servers ask for a tenant here, and no wall stands behind the statement.
    const quota = (await readQuotas(this.#db, tenant)).find((one) => one.tenant === tenant);
    const used = await readUsage(this.#db, tenant);
    return { ...(quota ?? { tenant, ...NONE }), used };
  }

  /** Changes what is given; a quota of nothing but `null` is forgotten. */
  async put(tenant: string, changes: QuotaChanges): Promise<TenantQuota> {
    const checked = checkQuota(tenant, changes);
    const quota = await putQuota(this.#db, tenant, checked, QUOTAS_MAX);
    if (quota === undefined) {
      throw new LimitError(`${QUOTAS_MAX} tenants have a quota; no more can have one`);
    }
    const { pendingTasks, pendingBytes, rate } = quota;
    if (pendingTasks === null && pendingBytes === null && rate === null) await this.clear(tenant);
    return quota;
  }

  async clear(tenant: string): Promise<void> {
    checkQuota(tenant, {});
    await deleteQuota(this.#db, tenant);
  }
}
