import { ConflictError, InvalidInputError, NotFoundError } from "../base/errors.ts";
import { refuseUnknown, requireNumber, requireOneOf } from "../base/options.ts";
import { Secret } from "../base/secret.ts";
import { isUuid } from "../base/uuid.ts";
import type { Store } from "../db/database.ts";
import { requireText } from "../tasks/encode.ts";
import { requireTaskId } from "../tasks/task-admin.ts";
import { DEFAULT_ENDPOINT } from "../tasks/webhook-name.ts";
import { defaultKeys } from "./default-keys.ts";
import { EgressRefusedError } from "./egress/errors.ts";
import { checkEndpoint, checkSecret, type EndpointOptions, requireEndpointId } from "./endpoint.ts";
import type { WebhookFormat, WebhookType } from "./message.ts";
import { createWebhookSecret } from "./signature.ts";
import {
  type DeliveryFilter,
  type DeliveryState,
  readAttempts,
  readDeliveries,
  redeliver,
} from "./sql/delivery-log.ts";
import {
  countOtherEndpoints,
  deleteEndpoint,
  type EndpointKeys,
  type EndpointRow,
  insertEndpoint,
  type NewEndpoint,
  readEndpointKeys,
  readEndpoints,
  rotateEndpoint,
  updateEndpoint,
} from "./sql/endpoints.ts";
import {
  toAttempt,
  toDelivery,
  toEndpoint,
  type WebhookAttempt,
  type WebhookDelivery,
  type WebhookEndpoint,
} from "./webhook-view.ts";

export interface RotateOptions {
  /** The new secret. Defaults to one that is made. */
  readonly secret?: string;
  /** How long the old one signs as well; 0 ends it now. Defaults to 86,400, a day. */
  readonly overlapSeconds?: number;
}

/** Which deliveries of a tenant. */
export interface WebhookFilter {
  readonly endpoint?: string;
  readonly taskId?: string;
  readonly type?: WebhookType;
  readonly state?: DeliveryState;
}

export interface ListDeliveriesOptions extends WebhookFilter {
  /** Only older ones: the last id of the page before. */
  readonly before?: string;
  /** Defaults to 50, at most 1,000. */
  readonly limit?: number;
}

export interface RedeliverFilter extends Omit<WebhookFilter, "state"> {
  /** Of these, also what waits for its next attempt is sent now. */
  readonly ids?: readonly string[];
  /** Defaults to "dead"; with `ids` to any but running ones. */
  readonly state?: "dead" | "delivered";
}

/** What says whether an address may ever be called: an `EgressGuard`. */
export interface UrlGuard {
  check(url: string): void;
}

export interface PutLimits {
  /** How many the tenant may have. Defaults to any number. */
  readonly endpointsMax?: number;
}

/** An endpoint, and its secret if one was made. */
export interface PutEndpoint {
  readonly endpoint: WebhookEndpoint;
  readonly secret: Secret | undefined;
}

const TYPES = ["task.completed", "task.failed", "task.dead", "task.cancelled"] as const;
const STATES = ["pending", "running", "delivered", "dead"] as const;
const PUT_TRIES = 3;
const OVERLAP_SECONDS = 86_400;
const OVERLAP_SECONDS_MAX = 90 * 86_400;
const TENANT_BYTES_MAX = 200;
/** Rows per statement: a million dead ones must not be one transaction. */
const BATCH = 1_000;
const IDS_MAX = 1_000;

/**
 * What people and programs do with webhooks. Every call names the tenant, and what belongs to
 * another is as unknown as what does not exist.
 */
export class WebhookAdmin {
  readonly #db: Store;
  readonly #guard: UrlGuard | undefined;

  /** @param guard refuses an address that can never be called; without one, who sends does */
  constructor(db: Store, guard?: UrlGuard) {
    this.#db = db;
    this.#guard = guard;
  }

  /** By id. */
  async list(tenant: string): Promise<WebhookEndpoint[]> {
    requireTenant(tenant);
    return (await readEndpoints(this.#db, tenant)).map(toEndpoint);
  }

  async get(tenant: string, id: string): Promise<WebhookEndpoint> {
    return toEndpoint(await this.#find(tenant, id));
  }

  /**
   * Makes the endpoint, or makes it what is given. The same again changes nothing, so every process
   * may call this when it starts: one that was disabled stays so, unless it gets another address.
   */
  async put(
    tenant: string,
    id: string,
    options: EndpointOptions,
    { endpointsMax = Infinity }: PutLimits = {},
  ): Promise<PutEndpoint> {
    requireTenant(tenant);
    const wanted = checkEndpoint(id, options);
    if (wanted.url !== undefined) this.#checkTarget(wanted.url);
    for (let tries = 0; tries < PUT_TRIES; tries += 1) {
      const secret = wanted.secret ?? createWebhookSecret();
      const { url, description, format, isEnabled } = wanted;
      const disabledReason = isEnabled === false ? "it was made so" : undefined;
      const row = { tenant, id, url, description, format };
      const made = await this.#make({ ...row, secret, disabledReason }, endpointsMax);
      if (made !== undefined) return { endpoint: toEndpoint(made), secret: new Secret(secret) };
      const keys = await readEndpointKeys(this.#db, tenant, id);
      if (keys === undefined) continue;
      refuseSecret(keys, wanted.secret, format);
      const changed = await updateEndpoint(this.#db, { ...row, isEnabled });
      if (changed !== undefined) return { endpoint: toEndpoint(changed), secret: undefined };
    }
    throw new ConflictError(`endpoint "${id}" is put and removed at the same time`);
  }

  /** Undefined when there is one. Of several at once no more are made than may be. */
  async #make(endpoint: NewEndpoint, endpointsMax: number): Promise<EndpointRow | undefined> {
    if (endpointsMax === Infinity) return await insertEndpoint(this.#db, endpoint);
    return await this.#db.transaction(async (tx) => {
      const { tenant, id } = endpoint;
      if ((await countOtherEndpoints(tx, tenant, id)) >= endpointsMax) {
        throw new ConflictError(`a tenant has at most ${endpointsMax} endpoints: remove one`);
      }
      return await insertEndpoint(tx, endpoint);
    });
  }

  /** Those that sign now, the newest first. The default endpoint is made by this if need be. */
  async secrets(tenant: string, id: string): Promise<Secret[]> {
    const { secrets } = await this.#keys(tenant, id);
    return secrets.map((text) => new Secret(text));
  }

  /**
   * Gives the endpoint a new secret. For a while the old one signs, too; one that is even older
   * ends at once.
   */
  async rotate(
    tenant: string,
    id: string,
    options: RotateOptions = {},
  ): Promise<PutEndpoint & { readonly secret: Secret }> {
    refuseUnknown("rotate", options, ["secret", "overlapSeconds"]);
    const range = { min: 0, max: OVERLAP_SECONDS_MAX };
    const given = options.overlapSeconds ?? OVERLAP_SECONDS;
    const overlapSeconds = requireNumber("overlapSeconds", given, range);
    const { format, secrets } = await this.#keys(tenant, id);
    const secret = options.secret ?? createWebhookSecret();
    checkSecret(secret, format);
    const [expected = ""] = secrets;
    if (secret === expected) throw new InvalidInputError("the new secret is the present one");
    const rotation = { expected, secret, overlapSeconds };
    const row = await rotateEndpoint(this.#db, tenant, id, rotation);
    if (row !== undefined) return { endpoint: toEndpoint(row), secret: new Secret(secret) };
    throw new ConflictError(`endpoint "${id}" was rotated or removed at the same time`);
  }

  /** Messages that still wait for it will be dead. */
  async remove(tenant: string, id: string): Promise<void> {
    requireTenant(tenant);
    requireEndpointId(id);
    if (!(await deleteEndpoint(this.#db, tenant, id))) throw unknownEndpoint(id);
  }

  /** Newest first. */
  async deliveries(
    tenant: string,
    options: ListDeliveriesOptions = {},
  ): Promise<WebhookDelivery[]> {
    requireTenant(tenant);
    refuseUnknown("deliveries", options, [...FILTER_KEYS, "state", "before", "limit"]);
    const { before, limit = 50, state, ...filter } = options;
    requireNumber("limit", limit, { min: 1, max: 1_000, integer: true });
    if (before !== undefined) requireDeliveryId(before);
    if (state !== undefined) requireOneOf("state", state, STATES);
    checkFilter(filter);
    const page = { ...filter, before, limit, states: state === undefined ? undefined : [state] };
    return (await readDeliveries(this.#db, tenant, page)).map(toDelivery);
  }

  /** One delivery, and every attempt of it, oldest first. */
  async delivery(
    tenant: string,
    id: string,
  ): Promise<WebhookDelivery & { readonly attempts: readonly WebhookAttempt[] }> {
    requireTenant(tenant);
    requireDeliveryId(id);
    const [row] = await readDeliveries(this.#db, tenant, { ids: [id], limit: 1 });
    if (row === undefined) {
      throw new NotFoundError(`there is no webhook delivery ${id}, or it was dropped`);
    }
    const attempts = await readAttempts(this.#db, tenant, id);
    return { ...toDelivery(row), attempts: attempts.map(toAttempt) };
  }

  /**
   * Sends deliveries again, with all their attempts and the same ids: receivers that had one before
   * can tell. Returns how many.
   */
  async redeliver(tenant: string, filter: RedeliverFilter = {}): Promise<number> {
    requireTenant(tenant);
    refuseUnknown("redeliver", filter, [...FILTER_KEYS, "ids", "state"]);
    const { state, ids, ...others } = filter;
    checkFilter(others);
    checkIds(ids);
    if (state !== undefined) requireOneOf("state", state, ["dead", "delivered"]);
    const states: readonly DeliveryState[] | undefined =
      state === undefined && ids !== undefined ? undefined : [state ?? "dead"];
    const which: DeliveryFilter = { ...others, ids, states };
    let total = 0;
    let after = 0n;
    for (;;) {
      const page = { after: String(after), max: BATCH };
      const numbers = await redeliver(this.#db, tenant, which, page);
      total += numbers.length;
      if (numbers.length < BATCH) return total;
      after = numbers.map(BigInt).reduce((a, b) => (a > b ? a : b), after);
    }
  }

  /** Before it is stored, where somebody reads why. What its name resolves to is for each call. */
  #checkTarget(url: string): void {
    try {
      this.#guard?.check(url);
    } catch (error) {
      if (!(error instanceof EgressRefusedError)) throw error;
      throw new InvalidInputError(`the url of the endpoint cannot be called: ${error.message}`);
    }
  }

  async #find(tenant: string, id: string): Promise<EndpointRow> {
    requireTenant(tenant);
    requireEndpointId(id);
    const [row] = await readEndpoints(this.#db, tenant, id);
    if (row === undefined) throw unknownEndpoint(id);
    return row;
  }

  async #keys(tenant: string, id: string): Promise<EndpointKeys> {
    requireTenant(tenant);
    requireEndpointId(id);
    const keys =
      id === DEFAULT_ENDPOINT
        ? await defaultKeys(this.#db, tenant)
        : await readEndpointKeys(this.#db, tenant, id);
    if (keys === undefined) throw unknownEndpoint(id);
    return keys;
  }
}

const FILTER_KEYS = ["endpoint", "taskId", "type"];

function checkFilter({ endpoint, taskId, type }: Omit<WebhookFilter, "state">): void {
  if (endpoint !== undefined) requireEndpointId(endpoint);
  if (taskId !== undefined) requireTaskId(taskId);
  if (type !== undefined) requireOneOf("type", type, TYPES);
}

function checkIds(ids: readonly string[] | undefined): void {
  if (ids === undefined) return;
  if (!Array.isArray(ids) || ids.length > IDS_MAX) {
    throw new InvalidInputError(`ids must be a list of at most ${IDS_MAX} ids of deliveries`);
  }
  for (const id of ids) requireDeliveryId(id);
}

function requireTenant(tenant: unknown): void {
  requireText("tenant", tenant, TENANT_BYTES_MAX);
}

function requireDeliveryId(id: unknown): void {
  if (typeof id === "string" && isUuid(id)) return;
  throw new InvalidInputError(
    `the id of a webhook delivery is a UUID, as webhook-id has it, not ${JSON.stringify(id)}`,
  );
}

/** A secret is given when an endpoint is made; a put that repeats itself may repeat it. */
function refuseSecret(
  { secrets }: EndpointKeys,
  given: string | undefined,
  format: WebhookFormat,
): void {
  for (const secret of secrets) checkSecret(secret, format);
  if (given === undefined || given === secrets[0]) return;
  throw new ConflictError("the endpoint has another secret: use rotate to change it");
}

function unknownEndpoint(id: string): NotFoundError {
  return new NotFoundError(
    `there is no webhook endpoint ${JSON.stringify(id)} of this tenant; ` +
      '"tidemill webhook list" shows them',
  );
}
