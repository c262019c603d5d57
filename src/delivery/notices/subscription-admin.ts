import { ConflictError, InvalidInputError, NotFoundError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { Secret } from "../../base/secret.ts";
import { isUuid, uuidv7 } from "../../base/uuid.ts";
import type { Queryable } from "../../db/database.ts";
import { NAME_BYTES_MAX, requireText } from "../../tasks/encode.ts";
import { EgressRefusedError } from "../egress/errors.ts";
import { createWebhookSecret } from "../signature.ts";
import type { UrlGuard } from "../webhook-admin.ts";
import {
  deleteSubscription,
  insertSubscription,
  readSubscriptions,
  renewSubscription,
  type SubscriptionRow,
} from "./sql/subscriptions.ts";
import {
  type CheckedSubscription,
  checkSubscription,
  type NoticeFormat,
  requireTtl,
  type SubscriptionOptions,
} from "./subscription.ts";
import { type Subscription, toSubscription } from "./subscription-view.ts";

export interface RenewOptions {
  /** From now on. Defaults to what it was made or last renewed with. */
  readonly ttlSeconds?: number;
}

/** A new subscription, and what its notices are signed with. */
export interface AddedSubscription {
  readonly subscription: Subscription;
  readonly secret: Secret;
}

/** Of one tenant, at once. */
export const SUBSCRIPTIONS_MAX = 500;

/**
 * What people and programs do with subscriptions. Every call names the tenant, and what belongs to
 * another is as unknown as what does not exist.
 */
export class SubscriptionAdmin {
  readonly #db: Queryable;
  readonly #guard: UrlGuard | undefined;

  /** @param guard refuses an address that can never be called; without one, who sends does */
  constructor(db: Queryable, guard?: UrlGuard) {
    this.#db = db;
    this.#guard = guard;
  }

  /** Those that have not ended, oldest first. */
  async list(tenant: string): Promise<Subscription[]> {
    requireTenant(tenant);
    return (await readSubscriptions(this.#db, tenant)).map(toSubscription);
  }

  async get(tenant: string, id: string): Promise<Subscription> {
    requireTenant(tenant);
    requireId(id);
    const [row] = await readSubscriptions(this.#db, tenant, id);
    return found(row, id);
  }

  /** Each call makes another one. Its secret is in the answer, and nowhere else later. */
  async add(tenant: string, options: SubscriptionOptions): Promise<AddedSubscription> {
    const wanted = checkSubscription(options);
    const secret = wanted.secret ?? createWebhookSecret();
    const subscription = await this.#insert(tenant, wanted, "standard", secret);
    return { subscription, secret: new Secret(secret) };
  }

  /**
   * @internal For receivers of CodeQ: in its form, and signed as the tenant's webhooks to plain
   * addresses are.
   */
  async addCodeq(
    tenant: string,
    options: Omit<SubscriptionOptions, "secret">,
  ): Promise<Subscription> {
    return await this.#insert(tenant, checkSubscription(options), "codeq", undefined);
  }

  /**
   * Lets it live on from now. One that calls failed of is told again as soon as its interval
   * allows: whoever renews is there.
   */
  async renew(tenant: string, id: string, options: RenewOptions = {}): Promise<Subscription> {
    requireTenant(tenant);
    requireId(id);
    refuseUnknown("renew", options, ["ttlSeconds"]);
    const { ttlSeconds } = options;
    if (ttlSeconds !== undefined) requireTtl(ttlSeconds);
    return found(await renewSubscription(this.#db, tenant, id, ttlSeconds), id);
  }

  /** A notice that is under way may still arrive. */
  async remove(tenant: string, id: string): Promise<void> {
    requireTenant(tenant);
    requireId(id);
    if (!(await deleteSubscription(this.#db, tenant, id))) throw unknown(id);
  }

  async #insert(
    tenant: string,
    wanted: CheckedSubscription,
    format: NoticeFormat,
    secret: string | undefined,
  ): Promise<Subscription> {
    requireTenant(tenant);
    this.#checkTarget(wanted.url);
    const made = { ...wanted, id: uuidv7(), tenant, format, secret };
    const row = await insertSubscription(this.#db, made, SUBSCRIPTIONS_MAX);
    if (row !== undefined) return toSubscription(row);
    throw new ConflictError(
      `a tenant has at most ${SUBSCRIPTIONS_MAX} subscriptions: remove some, or let them end`,
    );
  }

  /** Before it is stored, where somebody reads why. What its name resolves to is for each call. */
  #checkTarget(url: string): void {
    try {
      this.#guard?.check(url);
    } catch (error) {
      if (!(error instanceof EgressRefusedError)) throw error;
      throw new InvalidInputError(`the url of the subscription cannot be called: ${error.message}`);
    }
  }
}

function found(row: SubscriptionRow | undefined, id: string): Subscription {
  if (row === undefined) throw unknown(id);
  return toSubscription(row);
}

function unknown(id: string): NotFoundError {
  return new NotFoundError(
    `there is no subscription ${id} of this tenant, or it has ended: add another`,
  );
}

function requireTenant(tenant: unknown): void {
  requireText("tenant", tenant, NAME_BYTES_MAX);
}

function requireId(id: unknown): void {
  if (typeof id === "string" && isUuid(id)) return;
  throw new InvalidInputError(`the id of a subscription is a UUID, not ${JSON.stringify(id)}`);
}
