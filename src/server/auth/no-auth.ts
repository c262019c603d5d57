import type { Authenticator } from "./authenticator.ts";
import type { Caller } from "./caller.ts";
import { checkGrant, configured, type Grant } from "./credentials.ts";

/** Takes everybody for the same caller, whatever token they bring or not. */
export class NoAuth implements Authenticator {
  readonly #caller: Caller;

  constructor(grant: Grant) {
    const checked = configured(() => checkGrant("insecureNoAuth", grant));
    this.#caller = { ...checked, subject: "anybody", expiresAt: "never", tokenId: "none" };
  }

  async authenticate(): Promise<Caller> {
    return await Promise.resolve(this.#caller);
  }
}
