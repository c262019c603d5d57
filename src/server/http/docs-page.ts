import { createHash } from "node:crypto";
import type { Document } from "./document.ts";

export interface DocsPage {
  readonly html: string;
  /** Allows the page its own style, and nothing else. */
  readonly policy: string;
}

const STYLE = `
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8884; border-radius: 6px; }
details { border-bottom: 1px solid #8884; padding: 0.4rem 0; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4rem; text-transform: uppercase; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
`;

/** Codes that an answer may have, and what the caller should do. */
const CODES: Readonly<Record<string, string>> = {
  TM_INVALID_INPUT: "Something in the request can never be accepted; the detail says what.",
  TM_CONFIG: "An option is unknown or out of range; the detail says which.",
  TM_UNAUTHENTICATED: "The token is missing, not valid, expired or revoked: get another.",
  TM_FORBIDDEN: "The token lacks a scope, or is not for this queue.",
  TM_NOT_FOUND: "There is no such thing, or it is not yours to see.",
  TM_METHOD_NOT_ALLOWED: "The path exists, with other methods.",
  TM_CONFLICT: "The state is not the one the call expects: read, then decide.",
  TM_IDEMPOTENCY_CONFLICT: "The idempotency key was used for another task.",
  TM_WRONG_EXPECTED_VERSION: "Somebody appended to the stream in between: read it again.",
  TM_DUPLICATE_EVENT: "An event with this id is in the log already.",
  TM_LEASE_LOST: "The claim is no longer held: drop the work.",
  TM_TOO_LARGE: "The body is too large.",
  TM_UNSUPPORTED_MEDIA_TYPE: "The body is not declared as JSON.",
  TM_LIMIT: "Too many calls: wait as long as retry-after says.",
  TM_TIMEOUT: "What was waited for did not happen in time; it may still.",
  TM_UNAVAILABLE: "The database cannot be reached: try again.",
  TM_SCHEMA: "The tables are older or newer than the server: its operator must act.",
  TM_INTERNAL: "A bug: tell the operator the request id.",
};

/** What the document says, for people: one file, without scripts, from nowhere else. */
export function writeDocsPage(document: Document): DocsPage {
  const paths = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    Object.entries(item as Record<string, Operation>).map(([method, one]) => ({
      path,
      method,
      one,
    })),
  );
  const tags = [...new Set(paths.flatMap(({ one }) => one.tags ?? []))];
  const sections = tags.map((tag) => {
    const own = paths.filter(({ one }) => one.tags?.includes(tag) === true);
    const items = own.map(({ path, method, one }) => writeOperation(path, method, one));
    return `<h2>${escape(tag)}</h2>\n${items.join("\n")}`;
  });
  const codes = Object.entries(CODES).map(
    ([code, text]) =>
      `<tr id="${code.toLowerCase()}"><td><code>${code}</code></td><td>${escape(text)}</td></tr>`,
  );
  const schemas = JSON.stringify(document.components?.schemas ?? {}, null, 2);
  const { title, version, description = "" } = document.info;
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escape(title)} ${escape(version)}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escape(title)} <small>${escape(version)}</small></h1>
<p>${escape(description)}</p>
<p>For programs: <a href="/openapi.json">/openapi.json</a></p>
${sections.join("\n")}
<h2>Problems</h2>
<table>${codes.join("\n")}</table>
<h2>Schemas</h2>
<pre>${escape(schemas)}</pre>
</body>
</html>
`;
  const hash = createHash("sha256").update(STYLE).digest("base64");
  return {
    html,
    policy: ["default-src", "base-uri", "frame-ancestors"]
      .map((what) => `${what} 'none'`)
      .concat(`style-src 'sha256-${hash}'`)
      .join("; "),
  };
}

interface Operation {
  readonly tags?: readonly string[];
  readonly summary?: string;
  readonly description?: string;
  readonly parameters?: readonly unknown[];
  readonly requestBody?: unknown;
  readonly responses?: unknown;
}

function writeOperation(path: string, method: string, one: Operation): string {
  const part = (title: string, value: unknown): string =>
    value === undefined
      ? ""
      : `<h4>${title}</h4>\n<pre>${escape(JSON.stringify(value, null, 2))}</pre>`;
  return `<details>
<summary><b>${escape(method)}</b> <code>${escape(path)}</code>
${escape(one.summary ?? "")}</summary>
<p>${escape(one.description ?? "")}</p>
${part("Parameters", one.parameters)}
${part("Body", one.requestBody)}
${part("Answers", one.responses)}
</details>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

const escape = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
