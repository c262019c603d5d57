import type { Queryable } from "../db/database.ts";
import { DEFAULT_ENDPOINT } from "../tasks/webhook-name.ts";
import { createWebhookSecret } from "./signature.ts";
import { type EndpointKeys, insertEndpoint, readEndpointKeys } from "./sql/endpoints.ts";

/** The keys with which a tenant's messages to plain addresses are signed; made on first use. */
export async function defaultKeys(
  db: Queryable,
  tenant: string,
): Promise<EndpointKeys | undefined> {
  const known = await readEndpointKeys(db, tenant, DEFAULT_ENDPOINT);
  if (known !== undefined) return known;
  const secret = createWebhookSecret();
  // Of two at once one is stored, and both read that.
  await insertEndpoint(db, { tenant, id: DEFAULT_ENDPOINT, format: "standard", secret });
  return await readEndpointKeys(db, tenant, DEFAULT_ENDPOINT);
}
