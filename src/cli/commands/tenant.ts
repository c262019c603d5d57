import { withoutUndefined } from "../../base/options.ts";
import type { Rate } from "../../tasks/limits.ts";
import type { Quota, QuotaChanges } from "../../tasks/quota.ts";
import type { TenantQuota } from "../../tasks/sql/quotas.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { withTidemill } from "../session.ts";
import { type Column, formatCount, tableLines } from "../table.ts";
import { shown } from "../text.ts";

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

export async function listTenants(flags: Documented): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const all = await mill.quotas.list();
    if (flags.json === true) printJson(all);
    else if (all.length > 0) print(tableLines(all, COLUMNS).join("\n"));
    else print("No tenant has a quota. To give one: tidemill tenant quota <tenant> --help");
  });
}

export interface QuotaFlags extends Documented {
  readonly pendingTasks?: number | "none";
  readonly pendingBytes?: number | "none";
  readonly rate?: Rate | "none";
}

/** Shows the quota, after changing what is given. The rest stays. */
export async function showQuota(tenant: string, flags: QuotaFlags): Promise<void> {
  const changes = changesOf(flags);
  await withTidemill(flags, async ({ quotas }) => {
    if (Object.keys(changes).length > 0) await quotas.put(tenant, changes);
    const quota = await quotas.get(tenant);
    if (flags.json === true) {
      printJson(quota);
      return;
    }
    const { used } = quota;
    print(`Tenant ${shown(tenant)}: ${quotaText(quota) || "no quota"}.`);
    const use = `${formatCount(used.tasks)} tasks, ${formatCount(used.bytes)} bytes`;
    if (quotaText(quota) !== "") print(`It has ${use}. Servers follow within two seconds.`);
  });
}

function changesOf({ pendingTasks, pendingBytes, rate }: QuotaFlags): QuotaChanges {
  const change = <T>(given: T | "none" | undefined): T | null | undefined =>
    given === "none" ? null : given;
  return withoutUndefined({
    pendingTasks: change(pendingTasks),
    pendingBytes: change(pendingBytes),
    rate: change(rate),
  });
}

function quotaText({ pendingTasks, pendingBytes, rate }: Quota): string {
  return [
    pendingTasks === null ? undefined : `${formatCount(pendingTasks)} tasks`,
    pendingBytes === null ? undefined : `${formatCount(pendingBytes)} bytes`,
    rate === null ? undefined : `${formatCount(rate.count)} creates in ${rate.seconds} s`,
  ]
    .filter((one) => one !== undefined)
    .join(", ");
}

const COLUMNS: Column<TenantQuota>[] = [
  { title: "TENANT", value: (one) => shown(one.tenant) },
  { title: "TASKS", value: (one) => countText(one.pendingTasks) },
  { title: "BYTES", value: (one) => countText(one.pendingBytes) },
  { title: "RATE", value: ({ rate }) => (rate === null ? "-" : `${rate.count}/${rate.seconds}`) },
];

const countText = (count: number | null): string => (count === null ? "-" : formatCount(count));
