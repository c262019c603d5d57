import { type Address, formatAddress, parseAddress } from "./address.ts";
import { EgressRefusedError } from "./errors.ts";
import { isAllowedHost, nameDenial, withoutDecoration } from "./host-name.ts";
import type { EgressRules } from "./options.ts";
import { denialOf } from "./ranges.ts";

/** Where a call may go as far as its text tells. Its name is not resolved yet. */
export interface Target {
  /** The normalised URL: reading it again gives the same target. */
  readonly href: string;
  /** Scheme, host and port, as messages and comparisons use them. */
  readonly origin: string;
  readonly isTls: boolean;
  /** Without brackets or a dot at the end. */
  readonly hostname: string;
  readonly port: number;
  /** What follows the host, without the fragment. */
  readonly path: string;
  /** What the Host header says. */
  readonly host: string;
  readonly isHostAllowed: boolean;
  /** The host if it is an address, checked already. */
  readonly literal: Address | undefined;
}

/**
 * Reads the address of a call and refuses what must not be called, before anything is resolved or
 * connected. Everything is judged after normalisation by the URL standard, which turns `0x7f.1`,
 * `2130706433` and full-width digits into the `127.0.0.1` that they reach.
 */
export function readTarget(text: string, rules: EgressRules): Target {
  const url = parse(text, rules);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && rules.allowHttp)) {
    const hint = url.protocol === "http:" ? "use https, or set allowHttp" : "use https";
    throw refused("scheme", `a target must not begin with ${url.protocol}; ${hint}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw refused("credentials", "a target must not hold a user or password: send a header");
  }
  const isTls = url.protocol === "https:";
  const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
  if (!rules.ports.includes(port)) {
    throw refused("port", `port ${port} is not called, only ${rules.ports.join(", ")}: see ports`);
  }
  return { ...readHost(url, rules), isTls, port, path: `${url.pathname}${url.search}` };
}

/** Refuses an address that `target` leads to, unless it is public or the operator trusts it. */
export function refuseDenied(
  address: Address,
  target: Pick<Target, "origin" | "isHostAllowed">,
  rules: EgressRules,
): void {
  const { origin, isHostAllowed } = target;
  const denial = denialOf(address, { cidrs: rules.allowCidrs, isHostAllowed });
  if (denial === undefined) return;
  throw new EgressRefusedError(
    "address",
    `${origin} leads to an address that is ${denial.name}, and only public ones are called; ` +
      HINTS[denial.openedBy],
    { address: formatAddress(address) },
  );
}

const HINTS = {
  host: "allowHosts or allowCidrs can allow it",
  cidr: "allowCidrs can allow it",
  never: "nothing can allow it",
} as const;

function parse(text: string, { urlLengthMax }: EgressRules): URL {
  const tooLong = `a target must not be longer than ${urlLengthMax} characters`;
  if (text.length > urlLengthMax) throw refused("url", tooLong);
  // The standard would drop these silently; whoever wrote them meant something else.
  if (/[\p{Cc}\s\\]/u.test(text)) {
    throw refused("url", "a target must not contain spaces, control characters or backslashes");
  }
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    const message = "a target must be a whole URL such as https://example.com/hook";
    throw new EgressRefusedError("url", message, { cause });
  }
  url.hash = "";
  // Escapes make it grow.
  if (url.href.length > urlLengthMax) throw refused("url", tooLong);
  return url;
}

type Host = Omit<Target, "isTls" | "port" | "path">;

function readHost(url: URL, rules: EgressRules): Host {
  const hostname = withoutDecoration(url.hostname);
  if (hostname === undefined) {
    throw refused("host", "the host of a target must be a name of letters, digits, - and dots");
  }
  const literal = parseAddress(hostname);
  if (literal === undefined) url.hostname = hostname;
  const { href, origin, host } = url;
  const isHostAllowed = isAllowedHost(hostname, rules.allowHosts);
  if (literal !== undefined) {
    refuseDenied(literal, { origin, isHostAllowed }, rules);
  } else if (!isHostAllowed) {
    const denial = nameDenial(hostname);
    if (denial !== undefined) {
      throw refused("host", `${hostname} ${denial}; allowHosts can allow it`);
    }
  }
  return { href, origin, hostname, host, isHostAllowed, literal };
}

function refused(reason: EgressRefusedError["reason"], message: string): EgressRefusedError {
  return new EgressRefusedError(reason, message);
}
