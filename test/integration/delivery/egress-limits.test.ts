import { inspect } from "node:util";
import { expect, it } from "vitest";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { egressScene } from "../../support/egress-scene.ts";
import { eventually } from "../../support/eventually.ts";
import { serve, serveRaw } from "../../support/http-server.ts";

/** Waits until the server has heard of the call. */
function heard(): { readonly happened: Promise<void>; readonly tell: () => void } {
  let tell = (): void => {};
  const happened = new Promise<void>((resolve) => {
    tell = resolve;
  });
  return { happened, tell: () => tell() };
}

it("a server that never answers is left after callSeconds", async () => {
  const { happened, tell } = heard();
  const server = await serve(tell);
  const scene = egressScene({ ports: [server.port], callSeconds: 30 });
  const failure = scene.failureOf(`http://hooks.test:${server.port}/slow?token=secret`);
  await happened;
  scene.clock.advance(29_999);
  expect(scene.clock.pending).toBe(1);
  scene.clock.advance(1);
  expect(await failure).toMatchObject({
    code: "TM_EGRESS_TIMEOUT",
    retryable: true,
    message:
      `http://hooks.test:${server.port} did not answer within 30 s: ` +
      "let it answer first and work later, or raise callSeconds",
  });
  await server.hungUp;
});

it("a server that trickles is left after callSeconds, however busy it looks", async () => {
  const { happened, tell } = heard();
  let written = 0;
  const server = await serveRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\n\r\n");
    const timer = setInterval(() => {
      socket.write(".");
      written += 1;
      if (written === 5) tell();
    }, 1);
    socket.once("close", () => clearInterval(timer));
  });
  const scene = egressScene({ ports: [server.port], callSeconds: 10 });
  const failure = scene.failureOf(`http://hooks.test:${server.port}/`);
  await happened;
  scene.clock.advance(10_000);
  expect(await failure).toMatchObject({ code: "TM_EGRESS_TIMEOUT" });
  await server.hungUp;
});

it("a server that trickles its headers is left too", async () => {
  const { happened, tell } = heard();
  const server = await serveRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\nx-");
    const timer = setInterval(() => socket.write("a", () => tell()), 1);
    socket.once("close", () => clearInterval(timer));
  });
  const scene = egressScene({ ports: [server.port], callSeconds: 10 });
  const failure = scene.failureOf(`http://hooks.test:${server.port}/`);
  await happened;
  scene.clock.advance(10_000);
  expect(await failure).toMatchObject({ code: "TM_EGRESS_TIMEOUT" });
  await server.hungUp;
});

it("an endless body is cut, said to be so, and its connection ended", async () => {
  const server = await serveRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n\r\n");
    const chunk = Buffer.alloc(16_384, "x");
    const pour = (): void => {
      while (!socket.destroyed && socket.write(chunk));
    };
    socket.on("drain", pour);
    pour();
  });
  const scene = egressScene({ ports: [server.port] });
  const { status, body, isTruncated } = await scene.call(`http://hooks.test:${server.port}/`);
  expect({ status, bytes: body.byteLength, isTruncated }).toEqual({
    status: 200,
    bytes: 65_536,
    isTruncated: true,
  });
  await server.hungUp;
});

it("a body of exactly the limit is whole, and one byte more is not", async () => {
  const server = await serve((request, response) => {
    response.end("x".repeat(Number(request.url?.slice(1))));
  });
  const scene = egressScene({ ports: [server.port], responseBytesMax: 100 });
  for (const [bytes, isTruncated] of [
    [0, false],
    [99, false],
    [100, false],
    [101, true],
  ] as const) {
    const answer = await scene.call(`http://hooks.test:${server.port}/${bytes}`);
    expect(answer).toMatchObject({ isTruncated });
    expect(answer.body.byteLength).toBe(Math.min(bytes, 100));
  }
  // The whole ones shared a connection; the cut one took its own down.
  expect(server.connections).toHaveLength(1);
  await server.hungUp;
});

it("nothing of an answer is unpacked", async () => {
  const server = await serve((request, response) => {
    response.setHeader("content-encoding", "gzip");
    response.end(`${request.headers["accept-encoding"]}`);
  });
  const scene = egressScene({ ports: [server.port] });
  const { body } = await scene.call(`http://hooks.test:${server.port}/`);
  expect(String(body)).toBe("identity");
});

it("huge headers fail the call", async () => {
  const server = await serveRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\n");
    const pour = (): void => {
      while (!socket.destroyed && socket.write(`x-secret: ${"a".repeat(1_000)}\r\n`));
    };
    socket.on("drain", pour);
    pour();
  });
  const scene = egressScene({ ports: [server.port] });
  const error = await scene.failureOf(`http://hooks.test:${server.port}/`);
  expect(error).toMatchObject({
    code: "TM_EGRESS_FAILED",
    retryable: true,
    message:
      `http://hooks.test:${server.port} answered with more than 16384 bytes of headers: ` +
      "raise headerBytesMax",
  });
  expect(inspect(error, { depth: 9 })).not.toContain("x-secret");
  await server.hungUp;
});

it.each([
  ["what is not HTTP", "SSH-2.0-canary\r\n\r\n", "request"],
  ["another protocol", "HTTP/1.1 101 Canary\r\n\r\n", "request"],
  ["an upgrade", "HTTP/1.1 101 A\r\nConnection: Upgrade\r\nUpgrade: canary\r\n\r\n", "request"],
  ["a body shorter than it said", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncanary", "response"],
  ["a broken chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ncanary\r\n", "response"],
  ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "request"],
  ["nothing", "", "request"],
])("%s fails the call without being quoted", async (_, answer, phase) => {
  const server = await serveRaw((socket) => {
    socket.once("data", () => socket.end(answer));
  });
  const scene = egressScene({ ports: [server.port] });
  const error = await scene.failureOf(`http://hooks.test:${server.port}/`);
  expect(error).toMatchObject({ code: "TM_EGRESS_FAILED", retryable: true, phase });
  expect(inspect(error, { depth: 9 })).not.toMatch(/canary|rawPacket/);
});

it("a body that is too large is not sent", async () => {
  const scene = egressScene({ requestBytesMax: 10 });
  const request = { url: "http://hooks.test/", method: "POST", body: "ä".repeat(6) } as const;
  expect(await scene.failureOf(request)).toMatchObject({
    reason: "request",
    message: "the body has 12 bytes and requestBytesMax allows 10",
  });
  expect(scene.resolved).toEqual([]);
});

it("an answer that comes before everything was sent counts, and ends the sending", async () => {
  const server = await serveRaw((socket) => {
    socket.pause(); // It never reads.
    socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
  });
  const scene = egressScene({
    ports: [server.port],
    requestBytesMax: 32_000_000,
    idleSeconds: 300,
  });
  const { status, body } = await scene.call({
    url: `http://hooks.test:${server.port}/`,
    method: "POST",
    body: Buffer.alloc(32_000_000),
  });
  expect({ status, body: String(body) }).toEqual({ status: 413, body: "no" });
  const [connection] = server.connections;
  connection?.resume(); // Only now does it hear that the other side has gone.
  await server.hungUp;
  expect(connection?.bytesRead).toBeLessThan(32_000_000);
});

it.each<[string, Record<string, unknown>]>([
  ["another host", { headers: { Host: "metadata.google.internal" } }],
  ["a second request", { headers: { "Transfer-Encoding": "chunked" } }],
  ["a length of its own", { headers: { "content-length": "5" } }],
  ["a proxy's password", { headers: { "Proxy-Authorization": "Basic x" } }],
  ["a line break", { headers: { "x-a": "1\r\nHost: other" } }],
  ["a name with a space", { headers: { "x a": "1" } }],
  ["what is no text", { headers: { "x-a": ["1", "2"] } }],
  ["too much", { headers: { "x-a": "a".repeat(20_000) } }],
  ["a tunnel", { method: "CONNECT" }],
  ["a method in lower case", { method: "post" }],
  ["a body with GET", { method: "GET", body: "x" }],
])("a request with %s is refused", async (_, part) => {
  const scene = egressScene({});
  const request = { url: "http://hooks.test/", ...part };
  expect(await scene.failureOf(request)).toMatchObject({ reason: "request", retryable: false });
  expect(scene.resolved).toEqual([]);
});

it("a connection that is not made in time is given up", async () => {
  // It takes connections, and never says a word of TLS.
  const { happened, tell } = heard();
  const server = await serveRaw((socket) => socket.once("data", tell));
  const scene = egressScene({ ports: [server.port], connectSeconds: 5, ca: HOOKS_TEST.cert });
  const failure = scene.failureOf(`https://hooks.test:${server.port}/`);
  await happened;
  scene.clock.advance(5_000);
  expect(await failure).toMatchObject({
    code: "TM_EGRESS_TIMEOUT",
    phase: "tls",
    message: expect.stringContaining("no connection within 5 s"),
  });
  await server.hungUp;
});

it("a connection that was made no longer counts against connectSeconds", async () => {
  const { happened, tell } = heard();
  let answer = (): void => {};
  const server = await serve((_, response) => {
    answer = () => void response.end("late");
    tell();
  });
  const scene = egressScene({ ports: [server.port], connectSeconds: 5, callSeconds: 30 });
  const call = scene.call(`http://hooks.test:${server.port}/`);
  await happened;
  await eventually(() => expect(scene.clock.pending).toBe(1));
  scene.clock.advance(20_000);
  answer();
  expect(String((await call).body)).toBe("late");
});

it("a name that is not resolved in time fails the call", async () => {
  const scene = egressScene({ resolve: () => new Promise(() => {}), callSeconds: 7 });
  const failure = scene.failureOf("http://hooks.test/");
  await eventually(() => expect(scene.resolved).toHaveLength(1));
  scene.clock.advance(7_000);
  expect(await failure).toMatchObject({ code: "TM_EGRESS_TIMEOUT", retryable: true });
});

it.each<[string, () => Promise<string[]>]>([
  ["does not exist", () => Promise.reject(new Error("queryA ENOTFOUND 10.9.8.7"))],
  ["has no address", async () => []],
])("a name that %s fails the call", async (_, resolve) => {
  const error = await egressScene({ resolve }).failureOf("http://hooks.test/");
  expect(error).toMatchObject({ code: "TM_EGRESS_FAILED", phase: "resolve", retryable: true });
  expect(error.message).not.toContain("10.9.8.7");
});

it("an abort ends the call with its reason, at each point", async () => {
  const reason = new Error("the worker stops");

  const before = egressScene({});
  before.abort(reason);
  await expect(before.call("http://hooks.test/")).rejects.toBe(reason);
  expect(before.resolved).toEqual([]);

  const resolving = egressScene({ resolve: () => new Promise(() => {}) });
  const unresolved = expect(resolving.call("http://hooks.test/")).rejects.toBe(reason);
  await eventually(() => expect(resolving.resolved).toHaveLength(1));
  resolving.abort(reason);
  await unresolved;

  const server = await serve((_, response) => void response.write("half of it"));
  const reading = egressScene({ ports: [server.port] });
  const unread = expect(reading.call(`http://hooks.test:${server.port}/`)).rejects.toBe(reason);
  await eventually(() => expect(server.requests).toHaveLength(1));
  reading.abort(reason);
  await unread;
  await server.hungUp;
});
