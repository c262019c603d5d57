import { UnauthenticatedError } from "../../base/errors.ts";

/** A JSON Web Token taken apart. Nothing of it is proven yet. */
export interface UnprovenJwt {
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
}

/** Three parts of base64url, none of them empty: a token without a signature is not even read. */
const COMPACT = /^([\w-]+)\.([\w-]+)\.[\w-]+$/;

/** Undefined when it is not in the form of a token at all. */
export function readJwt(bearer: string): UnprovenJwt | undefined {
  const [, header, claims] = COMPACT.exec(bearer) ?? [];
  if (header === undefined || claims === undefined) return undefined;
  return { header: readObject("header", header), claims: readObject("payload", claims) };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function readObject(what: string, base64url: string): Record<string, unknown> {
  const malformed = (why: string): UnauthenticatedError =>
    new UnauthenticatedError("malformed", `the ${what} ${why}`);
  let text: string;
  let value: unknown;
  try {
    text = utf8.decode(Buffer.from(base64url, "base64url"));
    value = JSON.parse(text);
  } catch {
    throw malformed("is not JSON"); // The error would quote it.
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw malformed("is not a JSON object");
  }
  if (hasRepeatedName(text)) throw malformed("has a name twice");
  return value as Record<string, unknown>;
}

/**
 * Whether the outermost object of a JSON text has a name twice. Of two claims one program takes the
 * first and another the last: what a gateway has checked must be what we read.
 */
export function hasRepeatedName(json: string): boolean {
  const names = new Set<string>();
  let depth = 0;
  let isName = false;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],]/g)) {
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") depth -= 1;
    else if (token.startsWith('"') && isName) {
      const name = JSON.parse(token) as string; // "\u0061" is another way to write "a".
      if (names.has(name)) return true;
      names.add(name);
    }
    // A name comes after the opening brace, and after each comma between members.
    isName = depth === 1 && (token === "{" || token === ",");
  }
  return false;
}
