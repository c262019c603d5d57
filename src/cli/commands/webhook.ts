import { NotFoundError } from "../../base/errors.ts";
import { withoutUndefined } from "../../base/options.ts";
import type { EndpointOptions } from "../../delivery/endpoint.ts";
import type {
  ListDeliveriesOptions,
  RedeliverFilter,
  RotateOptions,
} from "../../delivery/webhook-admin.ts";
import { confirm } from "../confirm.ts";
import { UsageError } from "../errors.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { readLine } from "../payload.ts";
import { withTidemill } from "../session.ts";
import { formatInstant, many, shown } from "../text.ts";
import { attemptLines, deliveryLines, endpointLines } from "../webhook-view.ts";

interface TenantFlags extends GlobalFlags {
  readonly tenant?: string;
  readonly json?: boolean;
}

interface Confirmed extends TenantFlags {
  readonly yes?: boolean;
}

const tenantOf = ({ tenant }: TenantFlags): string => tenant ?? "default";

export async function listEndpoints(flags: TenantFlags): Promise<void> {
  await withTidemill(flags, async ({ webhooks }) => {
    const all = await webhooks.list(tenantOf(flags));
    if (flags.json === true) printJson(all);
    else if (all.length > 0) print(endpointLines(all).join("\n"));
    else print("No endpoint. To make one: tidemill webhook put <id> --url https://...");
  });
}

export interface PutFlags extends TenantFlags {
  readonly url?: string;
  readonly description?: string;
  readonly format?: EndpointOptions["format"];
  readonly secretFile?: string;
  readonly enable?: boolean;
  readonly disable?: boolean;
}

export async function putEndpoint(id: string, flags: PutFlags): Promise<void> {
  const { url, description, format, secretFile, enable, disable } = flags;
  const secret = secretFile === undefined ? undefined : await readLine(secretFile);
  const isEnabled = disable === true ? false : enable;
  const given = { url, description, format, secret, isEnabled };
  const options = withoutUndefined(given) as EndpointOptions;
  await withTidemill(flags, async ({ webhooks }) => {
    const { endpoint, secret: made } = await webhooks.put(tenantOf(flags), id, options);
    if (flags.json === true) {
      printJson({ ...endpoint, ...(made === undefined ? {} : { secret: made.reveal() }) });
      return;
    }
    if (made !== undefined && secret === undefined) print(made.reveal());
    const state = endpoint.disabledAt === undefined ? "" : ", and is disabled";
    print(`Endpoint ${id} is ${made === undefined ? "as given" : "made"}${state}.`);
  });
}

export async function showSecrets(id: string, flags: TenantFlags): Promise<void> {
  await withTidemill(flags, async ({ webhooks }) => {
    const secrets = (await webhooks.secrets(tenantOf(flags), id)).map((one) => one.reveal());
    if (flags.json === true) printJson(secrets);
    else print(secrets.join("\n"));
  });
}

export interface RotateFlags extends TenantFlags {
  readonly overlap?: number;
  readonly secretFile?: string;
}

export async function rotateSecret(id: string, flags: RotateFlags): Promise<void> {
  const { overlap: overlapSeconds, secretFile } = flags;
  const given = secretFile === undefined ? undefined : await readLine(secretFile);
  const options = withoutUndefined({ overlapSeconds, secret: given }) as RotateOptions;
  await withTidemill(flags, async ({ webhooks }) => {
    const { endpoint, secret } = await webhooks.rotate(tenantOf(flags), id, options);
    if (flags.json === true) {
      printJson({ ...endpoint, secret: secret.reveal() });
      return;
    }
    if (given === undefined) print(secret.reveal());
    const { oldSecretUntil } = endpoint;
    const old =
      oldSecretUntil === undefined
        ? "the old one has ended"
        : `the old one signs, too, until ${formatInstant(oldSecretUntil)}`;
    print(`Endpoint ${id} has a new secret; ${old}.`);
  });
}

export async function removeEndpoint(id: string, flags: Confirmed): Promise<void> {
  const tenant = tenantOf(flags);
  await withTidemill(flags, async ({ webhooks }) => {
    const { url } = await webhooks.get(tenant, id);
    const where = url === undefined ? "" : ` (${shown(url)})`;
    await confirm(`This forgets endpoint ${id}${where} and its secret.`, flags);
    await webhooks.remove(tenant, id);
    if (flags.json === true) printJson({ id, isRemoved: true });
    else print(`Endpoint ${id} is removed.`);
  });
}

export interface DeliveriesFlags extends TenantFlags {
  readonly endpoint?: string;
  readonly state?: ListDeliveriesOptions["state"];
  readonly task?: string;
  readonly type?: ListDeliveriesOptions["type"];
  readonly before?: string;
  readonly limit: number;
}

export async function showDeliveries(
  id: string | undefined,
  flags: DeliveriesFlags,
): Promise<void> {
  const { endpoint, state, task: taskId, type, before, limit } = flags;
  const tenant = tenantOf(flags);
  await withTidemill(flags, async ({ webhooks }) => {
    if (id !== undefined) {
      const one = await webhooks.delivery(tenant, id);
      if (flags.json === true) printJson(one);
      else print([...deliveryLines([one], limit), "", ...attemptLines(one.attempts)].join("\n"));
      return;
    }
    const options = withoutUndefined({ endpoint, state, taskId, type, before, limit });
    const all = await webhooks.deliveries(tenant, options);
    if (flags.json === true) printJson(all);
    else print(deliveryLines(all, limit).join("\n"));
  });
}

export interface RedeliverFlags extends Confirmed {
  readonly endpoint?: string;
  readonly task?: string;
  readonly type?: RedeliverFilter["type"];
  readonly state?: RedeliverFilter["state"];
  readonly all?: boolean;
}

export async function redeliver(given: readonly string[], flags: RedeliverFlags): Promise<void> {
  const { endpoint, task: taskId, type, state, all } = flags;
  const ids = given.length === 0 ? undefined : given;
  const isNarrow = [ids, endpoint, taskId, type].some((one) => one !== undefined);
  if (isNarrow === (all === true)) {
    throw new UsageError(
      "which deliveries? Name ids, --endpoint, --task or --type, or say --all, not both",
    );
  }
  const filter = withoutUndefined({ ids, endpoint, taskId, type, state }) as RedeliverFilter;
  const which = ids === undefined ? `every ${state ?? "dead"} delivery that fits` : ids.join(", ");
  await withTidemill(flags, async ({ webhooks }) => {
    await confirm(`This sends ${which} again.`, flags);
    const redelivered = await webhooks.redeliver(tenantOf(flags), filter);
    if (redelivered === 0 && ids !== undefined) {
      throw new NotFoundError(
        `there is no delivery ${ids.join(", ")} that could be sent again; ` +
          '"tidemill webhook deliveries" shows them',
      );
    }
    if (flags.json === true) printJson({ redelivered });
    else print(`${many(redelivered, "message")} will be sent again.`);
  });
}
