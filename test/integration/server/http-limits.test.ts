import { expect, it } from "vitest";
import { TidemillServer } from "../../../src/server/index.ts";
import { READER, scene } from "./scene.ts";

it("a server holds the limits of HTTP that it was given, and refuses nonsense", async () => {
  const { server, mill } = await scene({
    server: { http: { port: 0 }, httpLimits: { callsPerSecond: 0.001, callsBurst: 2 } },
  });
  const { host, port } = server.address("http");
  const headers = { authorization: `Bearer ${READER}` };
  const statuses: number[] = [];
  for (let call = 0; call < 3; call += 1) {
    statuses.push((await fetch(`http://${host}:${port}/v1/tasks`, { headers })).status);
  }
  expect(statuses).toEqual([200, 200, 429]);
  const make = (): TidemillServer => new TidemillServer(mill, { httpLimits: { callsBurst: 0 } });
  expect(make).toThrow("callsBurst");
});
