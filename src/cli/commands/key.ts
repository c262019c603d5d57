import { withoutUndefined } from "../../base/options.ts";
import {
  type ApiKey,
  ApiKeyAdmin,
  type ApiKeyOptions,
  type ApiKeyState,
} from "../../server/auth/api-key-admin.ts";
import type { Scope } from "../../server/auth/caller.ts";
import { confirm } from "../confirm.ts";
import type { GlobalFlags } from "../options.ts";
import { colors, print, printJson } from "../output.ts";
import { withDatabase } from "../session.ts";
import { type Column, tableLines } from "../table.ts";
import { formatAge, formatInstant, shown } from "../text.ts";

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

export interface CreateKeyFlags extends Documented {
  readonly tenant: string;
  readonly scopes: readonly string[];
  readonly queues?: readonly string[];
  readonly expires?: number;
  readonly name?: string;
}

export async function createKey(flags: CreateKeyFlags): Promise<void> {
  const { tenant, scopes, queues, expires: expiresSeconds, name } = flags;
  const options = withoutUndefined({
    tenant,
    scopes: scopes as readonly Scope[], // Checked where keys are made.
    queues,
    expiresSeconds,
    name,
  }) as ApiKeyOptions;
  await withKeys(flags, async (keys) => {
    const { apiKey, key } = await keys.create(options);
    if (flags.json === true) {
      printJson({ ...apiKey, key: key.reveal() });
      return;
    }
    const { expiresAt } = apiKey;
    const until = expiresAt === undefined ? "never expires" : `expires ${formatInstant(expiresAt)}`;
    const of = `API key ${apiKey.id} of tenant ${shown(apiKey.tenant)}`;
    print(key.reveal());
    print(`${of} ${until}. Keep it: it is not shown again.`);
  });
}

export async function listKeys(flags: Documented & { readonly tenant?: string }): Promise<void> {
  const { tenant } = flags;
  await withKeys(flags, async (keys) => {
    const all = await keys.list(tenant === undefined ? {} : { tenant });
    if (flags.json === true) printJson(all);
    else if (all.length > 0) print(tableLines(all, COLUMNS).join("\n"));
    else print("No API key. To make one: tidemill key create --tenant <tenant> --scopes <scopes>");
  });
}

export async function revokeKey(
  given: string,
  flags: Documented & { readonly yes?: boolean },
): Promise<void> {
  await withKeys(flags, async (keys) => {
    const { id, tenant, name } = await keys.get(given);
    const named = name === undefined ? "" : ` (${shown(name)})`;
    await confirm(`This revokes API key ${id}${named} of tenant ${shown(tenant)} for ever.`, flags);
    const revoked = await keys.revoke(id);
    if (flags.json === true) printJson(revoked);
    else print(`API key ${id} is revoked; running servers refuse it within seconds.`);
  });
}

async function withKeys(
  flags: GlobalFlags,
  work: (keys: ApiKeyAdmin) => Promise<void>,
): Promise<void> {
  await withDatabase(flags, (db) => work(new ApiKeyAdmin(db)));
}

const PAINTED: Readonly<Record<ApiKeyState, (text: string) => string>> = {
  active: colors.green,
  expired: colors.yellow,
  revoked: colors.red,
};

const COLUMNS: Column<ApiKey>[] = [
  { title: "KEY", value: (one) => one.id },
  { title: "TENANT", value: (one) => shown(one.tenant) },
  { title: "NAME", value: (one) => shown(one.name ?? "-") },
  { title: "SCOPES", value: (one) => one.scopes.join(",") },
  { title: "QUEUES", value: (one) => (one.queues === "all" ? "all" : shown(one.queues.join(","))) },
  { title: "STATE", value: (one) => one.state, paint: (text, one) => PAINTED[one.state](text) },
  { title: "CREATED", value: (one) => formatAge(one.createdAt) },
  { title: "EXPIRES", value: ({ expiresAt }) => (expiresAt ? formatAge(expiresAt) : "never") },
  { title: "USED", value: ({ lastUsedAt }) => (lastUsedAt ? formatAge(lastUsedAt) : "never") },
];
