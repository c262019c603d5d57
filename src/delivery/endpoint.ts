import { InvalidInputError } from "../base/errors.ts";
import { refuseUnknown, requireOneOf } from "../base/options.ts";
import { requireText } from "../tasks/encode.ts";
import { DEFAULT_ENDPOINT, isEndpointId } from "../tasks/webhook-name.ts";
import { WEBHOOK_FORMATS, type WebhookFormat } from "./message.ts";
import { requireWebhookSecret } from "./signature.ts";

/** What an endpoint is to be. */
export interface EndpointOptions {
  /** Required, but for the endpoint "default": that one signs for tasks that name an address. */
  readonly url?: string;
  /** For people. Defaults to none. */
  readonly description?: string;
  /** "codeq" is for receivers of CodeQ's result callbacks. Defaults to "standard". */
  readonly format?: WebhookFormat;
  /** Of a new endpoint, to take over one that receivers have. Defaults to one that is made. */
  readonly secret?: string;
  /** Defaults to as it is; a new one, and one with another address, is enabled. */
  readonly isEnabled?: boolean;
}

export interface CheckedEndpoint {
  readonly url: string | undefined;
  readonly description: string | undefined;
  readonly format: WebhookFormat;
  readonly secret: string | undefined;
  readonly isEnabled: boolean | undefined;
}

const KEYS = ["url", "description", "format", "secret", "isEnabled"];
const URL_BYTES_MAX = 1_024;
const DESCRIPTION_BYTES_MAX = 1_024;
const CODEQ_SECRET = /^[\x21-\x7e]{16,256}$/;

export function checkEndpoint(id: string, options: EndpointOptions): CheckedEndpoint {
  requireEndpointId(id);
  refuseUnknown("endpoint", options, KEYS);
  const { url, description, secret, isEnabled } = options;
  const format = requireOneOf("format", options.format ?? "standard", WEBHOOK_FORMATS);
  checkUrl(id, url);
  if (description !== undefined) requireText("description", description, DESCRIPTION_BYTES_MAX);
  if (secret !== undefined) checkSecret(secret, format);
  if (isEnabled !== undefined && typeof isEnabled !== "boolean") {
    throw new InvalidInputError("isEnabled must be true or false");
  }
  return { url, description, format, secret, isEnabled };
}

/** Whether it may be called is for the egress guard of whoever sends. */
function checkUrl(id: string, url: string | undefined = ""): void {
  if (id === DEFAULT_ENDPOINT) {
    if (url === "") return;
    throw new InvalidInputError(
      'the endpoint "default" has no address: it signs for tasks that name one of their own',
    );
  }
  requireText("url", url, URL_BYTES_MAX);
  const target = URL.canParse(url) ? new URL(url) : undefined;
  if (target === undefined || !/^https?:$/.test(target.protocol)) {
    throw new InvalidInputError("the url of an endpoint must begin with https:// or http://");
  }
  if (target.username !== "" || target.password !== "") {
    throw new InvalidInputError(
      "the url of an endpoint must not hold a password: messages are signed, check that",
    );
  }
}

export function requireEndpointId(id: unknown): void {
  if (isEndpointId(id)) return;
  throw new InvalidInputError(
    "the id of an endpoint has 1 to 64 of A-Z a-z 0-9 _ -, and begins with a letter or digit",
  );
}

/** Says what a secret must be, and never what it is. */
export function checkSecret(secret: unknown, format: WebhookFormat): void {
  if (format === "standard") {
    requireWebhookSecret(secret);
    return;
  }
  if (typeof secret === "string" && CODEQ_SECRET.test(secret)) return;
  throw new InvalidInputError(
    'a secret of format "codeq" has 16 to 256 printable characters without spaces',
  );
}
