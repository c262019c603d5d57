import { withoutUndefined } from "../../base/options.ts";
import type { NoticeMode, SubscriptionOptions } from "../../delivery/notices/subscription.ts";
import { confirm } from "../confirm.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { readLine } from "../payload.ts";
import { withTidemill } from "../session.ts";
import { subscriptionLines } from "../subscription-view.ts";
import { formatInstant, shown } from "../text.ts";

interface TenantFlags extends GlobalFlags {
  readonly tenant?: string;
  readonly json?: boolean;
}

const tenantOf = ({ tenant }: TenantFlags): string => tenant ?? "default";

export async function listSubscriptions(flags: TenantFlags): Promise<void> {
  await withTidemill(flags, async ({ subscriptions }) => {
    const all = await subscriptions.list(tenantOf(flags));
    if (flags.json === true) printJson(all);
    else if (all.length > 0) print(subscriptionLines(all).join("\n"));
    else print("No subscription. To make one: tidemill subscription add https://...");
  });
}

export interface AddFlags extends TenantFlags {
  readonly queues?: readonly string[];
  readonly mode?: NoticeMode;
  readonly group?: string;
  readonly ttl?: number;
  readonly minInterval?: number;
  readonly secretFile?: string;
}

export async function addSubscription(url: string, flags: AddFlags): Promise<void> {
  const { queues, mode, group, ttl: ttlSeconds, minInterval: minIntervalSeconds } = flags;
  const given = flags.secretFile === undefined ? undefined : await readLine(flags.secretFile);
  const wanted = { url, queues, mode, group, ttlSeconds, minIntervalSeconds, secret: given };
  const options = withoutUndefined(wanted) as SubscriptionOptions;
  await withTidemill(flags, async ({ subscriptions }) => {
    const { subscription, secret } = await subscriptions.add(tenantOf(flags), options);
    if (flags.json === true) {
      printJson({ ...subscription, secret: secret.reveal() });
      return;
    }
    if (given === undefined) print(secret.reveal());
    const { id, expiresAt } = subscription;
    print(`Subscription ${id} ends ${formatInstant(expiresAt)}, unless it is renewed.`);
  });
}

export interface RenewFlags extends TenantFlags {
  readonly ttl?: number;
}

export async function renewSubscription(id: string, flags: RenewFlags): Promise<void> {
  const { ttl: ttlSeconds } = flags;
  await withTidemill(flags, async ({ subscriptions }) => {
    const options = withoutUndefined({ ttlSeconds });
    const renewed = await subscriptions.renew(tenantOf(flags), id, options);
    if (flags.json === true) printJson(renewed);
    else print(`Subscription ${id} ends ${formatInstant(renewed.expiresAt)}.`);
  });
}

export async function removeSubscription(
  id: string,
  flags: TenantFlags & { readonly yes?: boolean },
): Promise<void> {
  const tenant = tenantOf(flags);
  await withTidemill(flags, async ({ subscriptions }) => {
    const { url } = await subscriptions.get(tenant, id);
    await confirm(`This ends subscription ${id} (${shown(url)}).`, flags);
    await subscriptions.remove(tenant, id);
    if (flags.json === true) printJson({ id, isRemoved: true });
    else print(`Subscription ${id} is removed.`);
  });
}
