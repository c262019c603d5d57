import { Command } from "commander";
import { expect, it } from "vitest";
import { SERVE_SETTINGS, type ServeFlags } from "./serve/settings.ts";
import { addSettings, likelyTypos, readEnvironment } from "./settings.ts";

function parse(args: readonly string[], environment: Record<string, string> = {}): ServeFlags {
  const command = new Command("serve").exitOverride().configureOutput({ writeErr: () => {} });
  addSettings(command, SERVE_SETTINGS);
  command.parse([...args], { from: "user" });
  readEnvironment(command, SERVE_SETTINGS, environment);
  return command.opts<ServeFlags>();
}

it("takes flags first, then the environment; empty is not given", () => {
  expect(parse(["--drain-seconds", "3"], { TIDEMILL_DRAIN_SECONDS: "9" }).drainSeconds).toBe(3);
  expect(parse([], { TIDEMILL_DRAIN_SECONDS: "9" }).drainSeconds).toBe(9);
  expect(parse([], { TIDEMILL_DRAIN_SECONDS: "" })).toEqual({});
  expect(parse([], { TIDEMILL_HOST: "::1", TIDEMILL_EGRESS_PORTS: "443,8443" })).toEqual({
    host: "::1",
    egressPorts: [443, 8443],
  });
});

it.each<[text: string, place: object | false]>([
  ["8080", { port: 8080 }],
  ["0", { port: 0 }],
  ["127.0.0.1:80", { host: "127.0.0.1", port: 80 }],
  ["[::1]:80", { host: "::1", port: 80 }],
  ["localhost:1", { host: "localhost", port: 1 }],
  ["off", false],
])("understands the place %s", (text, place) => {
  expect(parse(["--http", text]).http).toEqual(place);
  expect(parse([], { TIDEMILL_METRICS: text }).metrics).toEqual(place);
});

it.each(["", "no", "65536", "host:", ":", "::1:80", "80 81", "tcp://10.0.0.1:80"])(
  "refuses the place %j",
  (text) => {
    expect(() => parse(["--http", text])).toThrow("port, host:port, or off");
    if (text === "") return;
    expect(() => parse([], { TIDEMILL_HTTP: text })).toThrow(/^TIDEMILL_HTTP is not right\. It/);
  },
);

it("reads switches of the environment by their word", () => {
  for (const text of ["1", "true", "YES", "on"]) {
    expect(parse([], { TIDEMILL_REQUIRE_WALL: text }).requireWall).toBe(true);
  }
  for (const text of ["0", "false", "No", "off"]) {
    expect(parse([], { TIDEMILL_REQUIRE_WALL: text }).requireWall).toBeUndefined();
  }
  expect(() => parse([], { TIDEMILL_INSECURE_NO_AUTH: "maybe" })).toThrow("on or off");
});

it("tells typos from what is somebody else's", () => {
  const environment = {
    TIDEMILL_HTPP: "1",
    TIDEMILL_HTTP: "1",
    TIDEMILL_SERVICE_HOST: "10.0.0.1",
    TIDEMILL_DEBUG: "1",
    HOME: "x",
  };
  expect(likelyTypos(SERVE_SETTINGS, environment)).toEqual([
    { given: "TIDEMILL_HTPP", meant: "TIDEMILL_HTTP" },
  ]);
});
