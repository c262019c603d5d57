import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { UsageError } from "../errors.ts";
import { serverOptionsOf } from "./server-options.ts";
import type { ServeFlags } from "./settings.ts";

let folder: string;
const file = (name: string): string => join(folder, name);
const SECRET = "very-secret-token-0123456789";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "tidemill-serve-"));
  const token = { token: SECRET, tenant: "acme", scopes: ["read"] };
  writeFileSync(file("tokens.json"), JSON.stringify({ tokens: [token] }));
  writeFileSync(file("list.json"), JSON.stringify([token]));
  writeFileSync(file("broken.json"), `{"token": "${SECRET}"`);
  writeFileSync(file("empty.json"), "[]");
  writeFileSync(file("text.json"), `"${SECRET}"`);
  writeFileSync(file("other.json"), JSON.stringify({ token: [token] }));
  writeFileSync(file("large.json"), " ".repeat(1024 * 1024 + 1));
});

afterAll(() => rmSync(folder, { recursive: true }));

it("says what was given, and leaves the rest to the server", () => {
  expect(serverOptionsOf({ http: false, worker: { port: 0 }, drainSeconds: 3 })).toEqual({
    auth: { staticTokens: [], issuers: [] },
    egress: {},
    deliverWebhooks: true,
    httpJobs: false,
    http: false,
    worker: { port: 0 },
    drainSeconds: 3,
  });
  const egress = { allowHosts: ["a.internal"], ports: [443], allowHttp: true };
  const flags = { egressAllowHosts: ["a.internal"], egressPorts: [443], egressAllowHttp: true };
  expect(serverOptionsOf(flags).egress).toEqual(egress);
  const patience = { leaseSeconds: 9, keepaliveSeconds: 4, keepaliveTimeoutSeconds: 2 };
  expect(serverOptionsOf({ ...patience, graceSeconds: 1 })).toMatchObject(patience);
  expect(serverOptionsOf({ webhooks: "off" }).deliverWebhooks).toBe(false);
  expect(serverOptionsOf({ webhookConcurrency: 5 }).deliverWebhooks).toEqual({ concurrency: 5 });
});

it("reads tokens from a list, alone or named", () => {
  for (const name of ["tokens.json", "list.json"]) {
    const { auth } = serverOptionsOf({ tokensFile: file(name) });
    expect(auth?.staticTokens).toEqual([{ token: SECRET, tenant: "acme", scopes: ["read"] }]);
  }
});

it("without tokens listens on loopback, unless another host is named", () => {
  const open = serverOptionsOf({ insecureNoAuth: true });
  expect(open).toMatchObject({
    host: "127.0.0.1",
    auth: { insecureNoAuth: { scopes: ["admin"] } },
  });
  expect(serverOptionsOf({ insecureNoAuth: true, host: "::1" }).host).toBe("::1");
});

it("adds the issuer of the flags to those of the file", () => {
  const issuer = { issuer: "a", audience: "b", jwksUrl: "https://a.example/keys" };
  writeFileSync(file("issuers.json"), JSON.stringify({ issuers: [issuer] }));
  const flags = { jwtIssuer: "c", jwtAudience: ["d"], jwksUrl: "https://c.example/keys" };
  const { auth } = serverOptionsOf({ ...flags, issuersFile: file("issuers.json") });
  expect(auth?.issuers).toEqual([
    issuer,
    { issuer: "c", audience: ["d"], jwksUrl: "https://c.example/keys" },
  ]);
});

it.each<[flags: () => ServeFlags, says: RegExp]>([
  [() => ({ insecureNoAuth: true, jwtIssuer: "x" }), /lets everybody in: leave it out, or/],
  [() => ({ tlsCert: "x" }), /--tls-cert and --tls-key go together/],
  [() => ({ tlsClientCa: "x" }), /--tls-cert and --tls-key go together/],
  [() => ({ tlsCert: file("none"), tlsKey: "x" }), /--tls-cert: .*none cannot be read: ENOENT/],
  [() => ({ jwtIssuer: "x" }), /--jwt-audience and --jwks-url go together/],
  [() => ({ jwksUrl: "x" }), /--jwt-issuer, --jwt-audience and/],
  [() => ({ tokensFile: file("none.json") }), /--tokens-file: .*none\.json cannot be read: ENOENT/],
  [() => ({ tokensFile: file("broken.json") }), /broken\.json is not JSON$/],
  [() => ({ tokensFile: file("empty.json") }), /must be a list of objects: \{ "tokens":/],
  [() => ({ tokensFile: file("text.json") }), /must be a list of objects/],
  [() => ({ tokensFile: file("other.json") }), /must be a list of objects/],
  [() => ({ tokensFile: file("large.json") }), /more than 1048576 bytes/],
  [() => ({ issuersFile: file("empty.json") }), /\{ "issuers":/],
])("refuses what cannot be meant, and never quotes a file: %s", (flags, says) => {
  let thrown: unknown;
  try {
    serverOptionsOf(flags());
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toBeInstanceOf(UsageError);
  expect(String(thrown)).toMatch(says);
  expect(String(thrown)).not.toContain(SECRET);
});
