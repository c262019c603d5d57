import { Socket } from "node:net";
import { expect, it, vi } from "vitest";
import { egressScene } from "../../support/egress-scene.ts";
import { MUST_REFUSE, resolveNames } from "../../support/egress-targets.ts";
import { serve } from "../../support/http-server.ts";

it("a name that resolves differently a moment later reaches nobody else", async () => {
  const victim = await serve((_, response) => response.end("secret"));
  const receiver = await serve((_, response) => response.end("hello"), {
    host: "127.0.0.2",
    port: victim.port,
  });
  // 127.0.0.2 stands for the public internet; 127.0.0.1 is this machine.
  const answers = [["127.0.0.2"]];
  const scene = egressScene({
    allowHosts: [],
    allowCidrs: ["127.0.0.2/32"],
    ports: [victim.port],
    resolve: async () => answers.shift() ?? ["127.0.0.1"],
  });
  const url = `http://rebind.example.com:${victim.port}/`;

  const { body } = await scene.call(url);
  expect(String(body)).toBe("hello");
  expect(scene.resolved).toHaveLength(1);
  expect(receiver.requests[0]?.headers.host).toBe(`rebind.example.com:${victim.port}`);

  expect(await scene.failureOf(url)).toMatchObject({
    code: "TM_EGRESS_REFUSED",
    reason: "address",
    retryable: false,
  });
  expect(victim.connections).toEqual([]);
});

it("one bad address among good ones spoils the name, wherever it stands", async () => {
  const victim = await serve((_, response) => response.end("secret"));
  for (const answer of [
    ["127.0.0.2", "127.0.0.1"],
    ["127.0.0.1", "127.0.0.2"],
    ["127.0.0.2", "127.0.0.2", "::ffff:127.0.0.1"],
  ]) {
    const scene = egressScene({
      allowCidrs: ["127.0.0.2/32"],
      ports: [victim.port],
      resolve: async () => answer,
    });
    const url = `http://mixed.example.com:${victim.port}/`;
    expect(await scene.failureOf(url)).toMatchObject({ reason: "address" });
  }
  expect(victim.connections).toEqual([]);
});

it("nothing is connected, and no address resolved, for a target that must be refused", async () => {
  const connect = vi.spyOn(Socket.prototype, "connect");
  const scene = egressScene({
    allowHosts: [],
    ports: [80, 443, 8443],
    resolve: resolveNames,
  });
  for (const [url, reason] of MUST_REFUSE) {
    scene.resolved.length = 0;
    expect(await scene.failureOf(url), url).toMatchObject({ reason });
    if (reason !== "address") expect(scene.resolved, url).toEqual([]);
  }
  expect(connect).not.toHaveBeenCalled();
  connect.mockRestore();
});

it("a literal address is checked although nothing resolves it", async () => {
  const victim = await serve((_, response) => response.end("secret"));
  const scene = egressScene({ ports: [victim.port] });
  for (const host of ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "127.1", "0x7f.1"]) {
    expect(await scene.failureOf(`http://${host}:${victim.port}/`)).toMatchObject({
      reason: "address",
    });
  }
  expect(victim.connections).toEqual([]);
  expect(scene.resolved).toEqual([]);
});

it("check refuses by the text alone", () => {
  const { guard, resolved } = egressScene({});
  expect(() => guard.check("https://localhost/")).toThrow("localhost is this machine");
  expect(() => guard.check("https://private.example.com/")).not.toThrow();
  expect(resolved).toEqual([]);
});
