import { text } from "node:stream/consumers";
import { expect, it } from "vitest";
import { HOOKS_TEST } from "../../support/egress-certificate.ts";
import { egressScene } from "../../support/egress-scene.ts";
import { serve } from "../../support/http-server.ts";

it("a redirect is refused unless it was allowed", async () => {
  const server = await serve((_, response) => {
    response.writeHead(302, { location: "/moved?secret" }).end("secret");
  });
  const scene = egressScene({ ports: [server.port] });
  const error = await scene.failureOf(`http://hooks.test:${server.port}/`);
  expect(error).toMatchObject({
    code: "TM_EGRESS_REFUSED",
    reason: "redirect",
    message:
      `http://hooks.test:${server.port} answered 302, and redirects are refused: ` +
      "use the final address",
  });
  expect(server.requests).toHaveLength(1);
});

it.each([
  ["http://169.254.169.254/latest/meta-data/", "address"],
  ["http://[::ffff:169.254.169.254]/", "address"],
  ["http://metadata.google.internal/", "host"],
  ["http://127.0.0.1:{port}/", "address"],
  ["http://2130706433:{port}/", "address"],
  ["//127.1:{port}/", "address"],
  ["http://localhost:{port}/", "host"],
  ["http://inside.example.com:{port}/", "address"],
  ["http://user:pass@hooks.test:{port}/", "credentials"],
  ["http://hooks.test:22/", "port"],
  ["file:///etc/passwd", "scheme"],
  ["http://[", "redirect"],
])("a 302 to %s is refused for its %s", async (location, reason) => {
  const victim = await serve((_, response) => response.end("secret"));
  const server = await serve((_, response) => {
    const to = location.replace("{port}", String(victim.port));
    response.writeHead(302, { location: to }).end();
  });
  const scene = egressScene({
    ports: [80, server.port, victim.port],
    redirectsMax: 5,
    // The name that redirects is allowed to be here; the one it leads to is not.
    resolve: async () => ["127.0.0.1"],
  });
  expect(await scene.failureOf(`http://hooks.test:${server.port}/`)).toMatchObject({ reason });
  expect(server.requests).toHaveLength(1);
  expect(victim.connections).toEqual([]);
});

it("each hop is resolved and counted, and the last one answers", async () => {
  const server = await serve((request, response) => {
    const step = Number(request.url?.slice(1));
    if (step >= 3) response.end(`step ${step}`);
    else response.writeHead(307, { location: `${step + 1}` }).end();
  });
  const url = `http://hooks.test:${server.port}/0`;
  const enough = egressScene({ ports: [server.port], redirectsMax: 3 });
  const answer = await enough.call(url);
  expect(String(answer.body)).toBe("step 3");
  expect(answer.url).toBe(`http://hooks.test:${server.port}/3`);
  expect(enough.resolved).toHaveLength(4);

  const tooFew = egressScene({ ports: [server.port], redirectsMax: 2 });
  expect(await tooFew.failureOf(url)).toMatchObject({
    reason: "redirect",
    message: expect.stringContaining("redirectsMax allows 2"),
  });
});

it("a loop of redirects ends", async () => {
  const server = await serve((_, response) => {
    response.writeHead(301, { location: "/" }).end();
  });
  const scene = egressScene({ ports: [server.port], redirectsMax: 20 });
  await scene.failureOf(`http://hooks.test:${server.port}/`);
  expect(server.requests).toHaveLength(21);
});

it("a hop that resolves to this machine the second time is refused", async () => {
  const server = await serve((_, response) => response.writeHead(302, { location: "/b" }).end(), {
    host: "127.0.0.2",
  });
  const answers = [["127.0.0.2"]];
  const scene = egressScene({
    allowCidrs: ["127.0.0.2"],
    ports: [server.port],
    redirectsMax: 5,
    resolve: async () => answers.shift() ?? ["127.0.0.1"],
  });
  const error = await scene.failureOf(`http://rebind.example.com:${server.port}/a`);
  expect(error).toMatchObject({ reason: "address" });
  expect(server.requests).toHaveLength(1);
});

it("a body is kept by 307 and 308, and never dropped by the others", async () => {
  const bodies: string[] = [];
  const server = await serve((request, response) => {
    void text(request).then((body) => {
      bodies.push(`${request.method} ${request.url} ${body}`);
      const status = Number(request.url?.slice(1));
      if (status > 0) response.writeHead(status, { location: "/0" }).end();
      else response.end("done");
    });
  });
  const scene = egressScene({ ports: [server.port], redirectsMax: 1 });
  const post = (status: number): { url: string; method: "POST"; body: string } => ({
    url: `http://hooks.test:${server.port}/${status}`,
    method: "POST",
    body: "payload",
  });
  await scene.call(post(307));
  await scene.call(post(308));
  const kept = ["POST /307 payload", "POST /0 payload", "POST /308 payload", "POST /0 payload"];
  expect(bodies.splice(0)).toEqual(kept);
  for (const status of [301, 302, 303]) {
    const error = await scene.failureOf(post(status));
    expect(error.message).toContain("would drop the body");
  }
  expect(bodies).toEqual(["POST /301 payload", "POST /302 payload", "POST /303 payload"]);
});

it("only harmless headers go to another origin", async () => {
  const elsewhere = await serve((_, response) => response.end());
  const server = await serve((_, response) => {
    response.writeHead(308, { location: `http://hooks.test:${elsewhere.port}/` }).end();
  });
  const scene = egressScene({ ports: [server.port, elsewhere.port], redirectsMax: 1 });
  const headers = {
    Authorization: "Bearer secret",
    Cookie: "session=secret",
    "X-Api-Key": "secret",
    "Content-Type": "application/json",
    "webhook-id": "msg_1",
  };
  await scene.call({
    url: `http://hooks.test:${server.port}/`,
    method: "POST",
    headers,
    body: "{}",
  });
  expect(server.requests[0]?.headers).toMatchObject({ authorization: "Bearer secret" });
  const seen = elsewhere.requests[0]?.headers ?? {};
  expect(JSON.stringify(seen)).not.toContain("secret");
  expect(seen).toMatchObject({ "content-type": "application/json", "webhook-id": "msg_1" });
});

it("what began with TLS does not go on without", async () => {
  const plain = await serve((_, response) => response.end("secret"));
  const server = await serve(
    (_, response) => {
      response.writeHead(302, { location: `http://hooks.test:${plain.port}/` }).end();
    },
    { tls: HOOKS_TEST },
  );
  const ports = [server.port, plain.port];
  const scene = egressScene({ ports, redirectsMax: 5, ca: HOOKS_TEST.cert });
  expect(await scene.failureOf(`https://hooks.test:${server.port}/`)).toMatchObject({
    reason: "redirect",
    message: expect.stringContaining("without TLS"),
  });
  expect(plain.connections).toEqual([]);
});

it.each([300, 304, 305])("a %i is an answer like others", async (status) => {
  const server = await serve((_, response) => {
    response.writeHead(status, { location: "http://127.0.0.1/" }).end();
  });
  const scene = egressScene({ ports: [server.port] });
  expect(await scene.call(`http://hooks.test:${server.port}/`)).toMatchObject({ status });
});
