import { describe, expect, it } from "vitest";
import { ConfigError } from "../../base/errors.ts";
import { formatAddress } from "./address.ts";
import { type EgressOptions, resolveEgressOptions } from "./options.ts";
import { lookupAll } from "./resolver.ts";

describe("resolveEgressOptions", () => {
  it("closes everything that was not opened", () => {
    expect(resolveEgressOptions()).toEqual({
      allowHttp: false,
      ports: [443],
      allowHosts: [],
      allowCidrs: [],
      redirectsMax: 0,
      connectSeconds: 5,
      callSeconds: 30,
      idleSeconds: 4,
      urlLengthMax: 2_048,
      requestBytesMax: 1_048_576,
      responseBytesMax: 65_536,
      headerBytesMax: 16_384,
      ca: undefined,
      resolve: lookupAll,
    });
    expect(Object.isFrozen(resolveEgressOptions())).toBe(true);
  });

  it("adds port 80 with http, and takes given ports as they are", () => {
    expect(resolveEgressOptions({ allowHttp: true }).ports).toEqual([443, 80]);
    expect(resolveEgressOptions({ allowHttp: true, ports: [8080] }).ports).toEqual([8080]);
  });

  it("takes an explicit undefined for nothing", () => {
    const given = { allowHttp: undefined, ports: undefined } as unknown as EgressOptions;
    expect(resolveEgressOptions(given)).toEqual(resolveEgressOptions());
  });

  it("normalises names and blocks", () => {
    const allowHosts = ["Hooks.Internal.", "*.SVC.cluster.local", "münchen.internal"];
    const resolved = resolveEgressOptions({ allowHosts, allowCidrs: ["10.0.0.0/8", "fd00::1"] });
    expect(resolved.allowHosts).toEqual([
      "hooks.internal",
      ".svc.cluster.local",
      "xn--mnchen-3ya.internal",
    ]);
    const blocks = resolved.allowCidrs.map(
      ({ base, prefixBits }) => `${formatAddress(base)}/${prefixBits}`,
    );
    expect(blocks).toEqual(["10.0.0.0/8", "fd00::1/128"]);
  });

  it.each<[unknown, string]>([
    [{ allowHTTP: true }, 'did you mean "allowHttp"?'],
    [{ timeout: 1 }, 'unknown egress option "timeout"'],
    [{ allowHttp: "yes" }, "allowHttp must be true or false"],
    [{ ports: 443 }, "ports must be a list"],
    [{ ports: [0] }, "each of ports must be a whole number"],
    [{ ports: ["443"] }, "each of ports must be a whole number"],
    [{ allowHosts: "a.b" }, "allowHosts must be a list"],
    [{ allowHosts: ["10.0.0.1"] }, "addresses go to allowCidrs"],
    [{ allowHosts: ["0x7f.1"] }, "addresses go to allowCidrs"],
    [{ allowHosts: ["[::1]"] }, "addresses go to allowCidrs"],
    [{ allowHosts: ["https://a.b"] }, "is no name of a host"],
    [{ allowHosts: ["a.b:80"] }, "is no name of a host"],
    [{ allowHosts: ["a.b/c"] }, "is no name of a host"],
    [{ allowHosts: ["u@a.b"] }, "is no name of a host"],
    [{ allowHosts: ["*"] }, "is no name of a host"],
    [{ allowHosts: ["*."] }, "is no name of a host"],
    [{ allowHosts: ["a.*.b"] }, "is no name of a host"],
    [{ allowHosts: [""] }, "is no name of a host"],
    [{ allowHosts: [7] }, "is no name of a host"],
    [{ allowCidrs: ["10.0.0.1/8"] }, "with zeros after the prefix"],
    [{ allowCidrs: ["hooks.internal"] }, "is no block of addresses"],
    [{ redirectsMax: -1 }, "redirectsMax must be a whole number"],
    [{ redirectsMax: Infinity }, "redirectsMax must be a whole number"],
    [{ callSeconds: 0 }, "callSeconds must be a number"],
    [{ responseBytesMax: 1e12 }, "responseBytesMax must be a whole number"],
    [{ ca: "/etc/ca.pem" }, "not the names of their files"],
    [{ resolve: "8.8.8.8" }, "resolve must be a function"],
  ])("refuses %j", (options, message) => {
    const resolve = (): unknown => resolveEgressOptions(options as EgressOptions);
    expect(resolve).toThrow(ConfigError);
    expect(resolve).toThrow(message);
  });
});
