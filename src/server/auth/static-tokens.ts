import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { ConfigError } from "../../base/errors.ts";
import { refuseUnknown } from "../../base/options.ts";
import { Secret } from "../../base/secret.ts";
import { type Caller, isName } from "./caller.ts";
import { type Credentials, checkGrant, configured, type Grant } from "./credentials.ts";

/** A token that the configuration of the server holds. It never expires. */
export interface StaticTokenOptions extends Grant {
  /** At least 16 characters; 32 random ones are better. */
  readonly token: string | Secret;
  /** Defaults to "static". */
  readonly subject?: string;
}

const KNOWN = ["token", "tenant", "scopes", "queues", "subject"];
const TOKEN_LENGTH_MIN = 16;

interface Entry {
  readonly digest: Buffer;
  readonly caller: Caller;
}

/**
 * Compares digests under a key of this process, all of them each time: how long it takes tells
 * nothing of how near a guess was, or which token it was near to.
 */
export class StaticTokens implements Credentials {
  readonly #key = randomBytes(32);
  readonly #entries: readonly Entry[];

  constructor(tokens: readonly StaticTokenOptions[]) {
    this.#entries = tokens.map((token, index) => this.#entry(token, index));
    const distinct = new Set(this.#entries.map(({ digest }) => digest.toString("hex")));
    if (distinct.size < tokens.length) throw new ConfigError("two static tokens are the same");
  }

  find(bearer: string): Caller | undefined {
    const digest = this.#digest(bearer);
    let found: Caller | undefined;
    for (const entry of this.#entries) {
      if (timingSafeEqual(entry.digest, digest)) found = entry.caller;
    }
    return found;
  }

  #entry(options: StaticTokenOptions, index: number): Entry {
    const what = `static token ${index + 1}`;
    refuseUnknown(what, options, KNOWN);
    const { token, subject = "static" } = options;
    const text = token instanceof Secret ? token.reveal() : token;
    if (typeof text !== "string" || text.length < TOKEN_LENGTH_MIN || /[^\x21-\x7e]/.test(text)) {
      throw new ConfigError(
        `${what} must have at least ${TOKEN_LENGTH_MIN} characters, all of them visible ASCII`,
      );
    }
    if (!isName(subject)) throw new ConfigError(`${what}: the subject is not a name`);
    const grant = configured(() => checkGrant(what, options));
    const caller: Caller = {
      ...grant,
      subject,
      expiresAt: "never",
      tokenId: `static:${index + 1}`,
    };
    return { digest: this.#digest(text), caller };
  }

  #digest(text: string): Buffer {
    return createHmac("sha256", this.#key).update(text).digest();
  }
}
