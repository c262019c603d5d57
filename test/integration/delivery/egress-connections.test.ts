import type { TLSSocket } from "node:tls";
import { afterEach, expect, it, vi } from "vitest";
import { VERSION } from "../../../src/base/version.ts";
import { EgressGuard } from "../../../src/delivery/egress/guard.ts";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { egressScene } from "../../support/egress-scene.ts";
import { eventually } from "../../support/eventually.ts";
import { serve, serveRaw } from "../../support/http-server.ts";

afterEach(() => vi.unstubAllEnvs());

it("the receiver sees the name, the method, the headers and the exact bytes", async () => {
  const chunks: Buffer[] = [];
  const server = await serve((request, response) => {
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => response.writeHead(418, { "X-Seen": ["a", "b"] }).end("short"));
  });
  const scene = egressScene({ ports: [server.port] });
  const body = Uint8Array.of(0, 255, 10, 13);
  const answer = await scene.call({
    url: `http://Hooks.Test.:${server.port}/a%20b?c=d#e`,
    method: "PUT",
    headers: { "X-One": "1" },
    body,
  });
  expect(answer).toEqual({
    status: 418,
    headers: expect.any(Map),
    body: Buffer.from("short"),
    isTruncated: false,
    url: `http://hooks.test:${server.port}/a%20b?c=d`,
  });
  expect(answer.headers.get("x-seen")).toBe("a, b");
  expect(Buffer.concat(chunks)).toEqual(Buffer.from(body));
  const [request] = server.requests;
  expect(request).toMatchObject({ method: "PUT", url: "/a%20b?c=d" });
  expect(request?.headers).toMatchObject({
    host: `hooks.test:${server.port}`,
    "x-one": "1",
    "content-length": "4",
    "user-agent": `tidemill/${VERSION}`,
  });
});

it("TLS is spoken with the name, to the checked address", async () => {
  const names: (string | false | null)[] = [];
  const server = await serve(
    (request, response) => {
      names.push((request.socket as TLSSocket).servername ?? null);
      response.end("hello");
    },
    { tls: HOOKS_TEST },
  );
  const scene = egressScene({ ports: [server.port], ca: HOOKS_TEST.cert });
  const { body } = await scene.call(`https://hooks.test:${server.port}/`);
  expect(String(body)).toBe("hello");
  expect(names).toEqual(["hooks.test"]);
  expect(server.requests[0]?.headers.host).toBe(`hooks.test:${server.port}`);

  const literal = egressScene({
    ports: [server.port],
    ca: HOOKS_TEST.cert,
    allowCidrs: ["127.0.0.1"],
  });
  await literal.call(`https://127.0.0.1:${server.port}/`);
  expect(names).toEqual(["hooks.test", false]);
});

it.each([
  ["of another name", "https://other.test:{port}/", HOOKS_TEST.cert],
  ["that nobody vouches for", "https://hooks.test:{port}/", undefined],
])("a certificate %s is refused, whatever the environment says", async (_, url, ca) => {
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  const server = await serve((_, response) => response.end(), { tls: HOOKS_TEST });
  const scene = egressScene({
    ports: [server.port],
    allowHosts: ["hooks.test", "other.test"],
    ...(ca === undefined ? {} : { ca }),
  });
  const error = await scene.failureOf(url.replace("{port}", String(server.port)));
  expect(error).toMatchObject({ code: "TM_EGRESS_FAILED", phase: "tls", retryable: true });
  expect(server.requests).toEqual([]);
});

it("proxies that the environment names are not used", async () => {
  const proxy = await serveRaw((socket) => socket.end("HTTP/1.1 200 OK\r\n\r\n"));
  const address = `http://127.0.0.1:${proxy.port}`;
  for (const name of ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"]) {
    vi.stubEnv(name, address);
  }
  vi.stubEnv("NO_PROXY", "");
  vi.stubEnv("NODE_USE_ENV_PROXY", "1");
  const server = await serve((_, response) => response.end("direct"));
  const scene = egressScene({ ports: [server.port] });
  const { body } = await scene.call(`http://hooks.test:${server.port}/`);
  expect(String(body)).toBe("direct");
  expect(proxy.connections).toEqual([]);
});

it.each(["http", "https"])("a connection (%s) is kept for its address alone", async (scheme) => {
  const tls = scheme === "https" ? { tls: HOOKS_TEST } : {};
  const first = await serve((_, response) => response.end("first"), tls);
  const second = await serve((_, response) => response.end("second"), {
    ...tls,
    host: "127.0.0.2",
    port: first.port,
  });
  let address = "127.0.0.1";
  const scene = egressScene({
    ports: [first.port],
    ca: HOOKS_TEST.cert,
    resolve: async () => [address],
  });
  const call = async (): Promise<string> =>
    String((await scene.call(`${scheme}://hooks.test:${first.port}/`)).body);

  expect([await call(), await call()]).toEqual(["first", "first"]);
  expect(first.connections).toHaveLength(1);
  address = "127.0.0.2";
  expect(await call()).toBe("second");
  address = "127.0.0.1";
  expect(await call()).toBe("first");
  expect(first.connections).toHaveLength(1);
  expect(second.connections).toHaveLength(1);
});

it("a kept connection is not used once its address may no longer be called", async () => {
  const server = await serve((_, response) => response.end("hello"));
  const scene = egressScene({ ports: [server.port] });
  await scene.call(`http://hooks.test:${server.port}/`);
  const error = await scene.failureOf(`http://other.example.com:${server.port}/`);
  expect(error).toMatchObject({ reason: "address" });
  expect(server.requests).toHaveLength(1);
});

it("idleSeconds 0 closes each connection, and close closes them all", async () => {
  const server = await serve((_, response) => response.end("hello"));
  const url = `http://hooks.test:${server.port}/`;
  const brief = egressScene({ ports: [server.port], idleSeconds: 0 });
  await brief.call(url);
  await brief.call(url);
  expect(server.connections).toHaveLength(2);
  await eventually(() => expect(server.connections.every((one) => one.destroyed)).toBe(true));

  const lasting = egressScene({ ports: [server.port] });
  await lasting.call(url);
  expect(server.connections[2]?.destroyed).toBe(false);
  lasting.guard.close();
  await eventually(() => expect(server.connections[2]?.destroyed).toBe(true));
});

it("the next address is tried while nothing was sent, and not after", async () => {
  const server = await serve((_, response) => response.end("hello"), { host: "127.0.0.3" });
  const options = {
    ports: [server.port],
    resolve: async () => ["127.0.0.2", "127.0.0.3"],
  };
  const url = `http://hooks.test:${server.port}/`;
  const { body } = await egressScene(options).call(url);
  expect(String(body)).toBe("hello");

  const rude = await serveRaw((socket) => void socket.once("data", () => socket.destroy()), {
    host: "127.0.0.2",
    port: server.port,
  });
  expect(await egressScene(options).failureOf(url)).toMatchObject({ phase: "request" });
  expect(rude.connections).toHaveLength(1);
  expect(server.requests).toHaveLength(1);
});

it("a host that nobody answers at fails without telling its address", async () => {
  const server = await serve((_, response) => response.end());
  const scene = egressScene({ ports: [server.port], resolve: async () => ["127.0.0.9"] });
  const error = await scene.failureOf(`http://hooks.test:${server.port}/`);
  expect(error).toMatchObject({
    code: "TM_EGRESS_FAILED",
    phase: "connect",
    retryable: true,
    message: `http://hooks.test:${server.port} could not be reached (ECONNREFUSED)`,
  });
});

it("an allowed name may be on this machine", async () => {
  const server = await serve((_, response) => response.end("hello"));
  const scene = egressScene({
    allowHosts: ["localhost", "*.svc.cluster.local"],
    ports: [server.port],
  });
  for (const host of ["localhost", "LOCALHOST.", "hooks.default.svc.cluster.local"]) {
    const { body } = await scene.call(`http://${host}:${server.port}/`);
    expect(String(body)).toBe("hello");
  }
});

it("names are resolved by the system unless told otherwise", async () => {
  const server = await serve((_, response) => response.end("hello"));
  const ports = [server.port];
  const url = `http://localhost:${server.port}/`;
  const { signal } = new AbortController();
  using guard = new EgressGuard({ allowHttp: true, allowHosts: ["localhost"], ports });
  const { body } = await guard.call({ url }, signal);
  expect(String(body)).toBe("hello");
});
