import { beforeAll, expect, it } from "vitest";
import { EgressGuard } from "../../../src/delivery/egress/guard.ts";
import type { EgressOptions } from "../../../src/delivery/egress/options.ts";
import { createAuth } from "../../../src/server/auth/create.ts";
import { fetchThrough } from "../../../src/server/auth/fetch-json.ts";
import type { JwtIssuerOptions } from "../../../src/server/auth/issuer-options.ts";
import { createHttpApi } from "../../../src/server/http/api.ts";
import { onCleanup } from "../../support/database.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { serve, type TestServer } from "../../support/http-server.ts";
import { ecKey, edKey, signJwt, type TestKey, toJwk } from "../../support/issuer.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { codeqStream, status } from "../../support/stream-client.ts";
import { acks, codeqHello, create, hello, scene as openScene, type Scene } from "./scene.ts";

/*
 * From the bearer token of a caller to the https server of its issuer: the one place where somebody
 * who is not known yet makes the server call out.
 */

const AUDIENCE = "tidemill";
const known = ecKey("known");
const PADDING = "x".repeat(64 * 1024);

let issuer: TestServer;
let scene: Scene;
/** What the issuer publishes at /rotating. */
let published: readonly TestKey[] = [];

/** What is at the address of each issuer's keys, by its path. */
const ANSWERS: Readonly<Record<string, () => [status: number, body: string, location?: string]>> = {
  good: () => [200, document([known])],
  moved: () => [302, "", "/good"],
  broken: () => [500, "out of order"],
  large: () => [200, JSON.stringify({ keys: [toJwk(known)], more: PADDING })],
  page: () => [200, "<html>"],
  rotating: () => [200, document(published)],
};

const document = (keys: readonly TestKey[]): string =>
  JSON.stringify({ keys: keys.map((key) => toJwk(key)) });

const issuerOf = (path: string): string => `https://login.example.com/${path}`;

function issuerAt(path: string, host = "hooks.test"): JwtIssuerOptions {
  const [page] = path.split("-");
  const jwksUrl = `https://${host}:${issuer.port}/${page}`;
  return { issuer: issuerOf(path), audience: AUDIENCE, jwksUrl };
}

const egress = (): EgressOptions => ({
  allowHosts: ["hooks.test", "stranger.test"],
  ports: [issuer.port],
  ca: HOOKS_TEST.cert,
  resolve: () => Promise.resolve(["127.0.0.1"]),
});

function tokenOf(path: string, key = known): string {
  const claims = {
    iss: issuerOf(path),
    aud: AUDIENCE,
    exp: Math.floor(Date.now() / 1000) + 300,
    sub: "robot",
    tid: "acme",
    scope: "tidemill:producer",
    eventTypes: ["*"],
  };
  return signJwt(claims, key);
}

beforeAll(async () => {
  issuer = await serve(
    (request, response) => {
      const [code, body, location] = ANSWERS[request.url?.slice(1) ?? ""]?.() ?? [404, ""];
      response.writeHead(code, location === undefined ? {} : { location }).end(body);
    },
    { tls: HOOKS_TEST, until: "file" },
  );
  scene = await openScene({
    until: "file",
    server: {
      http: { port: 0 },
      egress: egress(),
      auth: {
        issuers: [
          ...Object.keys(ANSWERS).map((path) => issuerAt(path)),
          issuerAt("good-name", "inside.example.com"),
          issuerAt("good-address", "127.0.0.1"),
          issuerAt("good-certificate", "stranger.test"),
        ],
      },
    },
  });
});

interface Reply {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

async function me(token: string): Promise<Reply> {
  const { host, port } = scene.server.address("http");
  const headers = { authorization: `Bearer ${token}` };
  const reply = await fetch(`http://${host}:${port}/v1/me`, { headers });
  return { status: reply.status, body: (await reply.json()) as Reply["body"] };
}

const asked = (path: string): number =>
  issuer.requests.filter(({ url }) => url === `/${path}`).length;

it("a token of an issuer opens REST and streams, and its keys are fetched once", async () => {
  const token = tokenOf("good");
  const [one] = await Promise.all([me(token), me(token), me(token)]);
  expect(one).toMatchObject({
    status: 200,
    body: { tenant: "acme", subject: "robot", scopes: ["producer"], queues: "all" },
  });
  const stream = await hello(scene.tidemill(), { token });
  create(stream, 1n);
  await stream.until(2);
  expect(acks(stream).get(1n)?.[0]).toMatch(/^\d+$/);
  await codeqHello(scene.codeq(), token);
  expect(asked("good")).toBe(1);

  // Of the same name, but not the one that the issuer publishes.
  const forged = tokenOf("good", ecKey("known"));
  expect(await me(forged)).toMatchObject({ status: 401, body: { code: "TM_UNAUTHENTICATED" } });
  const refused = codeqStream(scene.url);
  onCleanup(() => Promise.resolve(refused.close()));
  refused.send({ event: { $case: "hello", value: { token: forged } } });
  expect((await refused.ended).code).toBe(status.UNAUTHENTICATED);
  expect(asked("good")).toBe(1);
});

it.each([
  ["moved", 1, "redirect"],
  ["broken", 1, "status 500"],
  ["large", 1, "more than 65536 bytes"],
  ["page", 1, "not JSON"],
  // Of these the guard lets nothing out, or nothing in: there is no request at all.
  ["good-name", 0, "only public ones are called"],
  ["good-address", 0, "only public ones are called"],
  ["good-certificate", 0, "stranger.test"],
])("keys that cannot be had let nobody in, and nobody hears why: %s", async (path, calls, why) => {
  const [page = ""] = path.split("-");
  const before = { asked: asked(page), all: issuer.requests.length };
  const connections = issuer.connections.length;
  const token = tokenOf(path);
  expect(await me(token)).toMatchObject({
    status: 503,
    body: {
      code: "TM_UNAVAILABLE",
      detail: "tokens of this issuer cannot be checked now; try again",
    },
  });
  const stream = scene.codeq();
  stream.send({ event: { $case: "hello", value: { token } } });
  expect((await stream.ended).code).toBe(status.UNAVAILABLE);
  expect(asked(page) - before.asked).toBe(calls);
  expect(issuer.requests.length - before.all).toBe(calls); // Nor where a redirect led.
  const isRefused = path === "good-name" || path === "good-address";
  if (isRefused) expect(issuer.connections.length).toBe(connections);
  expect(scene.logs).toContainEqual(
    expect.objectContaining({
      level: "warn",
      message: "could not fetch the keys of an issuer",
      fields: expect.objectContaining({
        issuer: issuerOf(path),
        error: expect.stringContaining(why),
      }),
    }),
  );
  expect(await me(tokenOf("good"))).toMatchObject({ status: 200 });
  expect(scene.logs.filter(({ level }) => level === "error")).toEqual([]);
});

it("a token that is signed with a new key is accepted once the keys may be fetched", async () => {
  const [first, second] = [ecKey("first"), edKey("second")];
  published = [first];
  const clock = new ManualClock();
  const guard = new EgressGuard(egress());
  onCleanup(() => Promise.resolve(guard.close()));
  const { mill } = scene;
  // The parts of a server, on a clock that need not be waited for.
  const { authenticator } = createAuth(
    { issuers: [issuerAt("rotating")] },
    { db: mill.engine.db, fetchJson: fetchThrough(guard), clock },
  );
  const api = createHttpApi({ mill, tenants: await mill.tenants(), authenticator });
  const answerTo = async (key: TestKey): Promise<number> => {
    const headers = { authorization: `Bearer ${tokenOf("rotating", key)}` };
    return (await api.fetch(new Request("http://tidemill.test/v1/me", { headers }))).status;
  };
  expect(await answerTo(first)).toBe(200);
  published = [first, second];
  clock.advance(1_000);
  expect(await answerTo(second)).toBe(401); // The keys were fetched just before.
  clock.advance(29_000);
  expect(await answerTo(second)).toBe(200);
  expect(await answerTo(first)).toBe(200);
  expect(asked("rotating")).toBe(2);
});
