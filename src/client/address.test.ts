import { describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { resolveAddresses } from "./address.ts";

describe("addresses of servers", () => {
  it.each([
    ["tasks.example.com", ["tasks.example.com:9091"]],
    ["10.0.0.1:7000", ["10.0.0.1:7000"]],
    ["[::1]", ["[::1]:9091"]],
    ["[2001:db8::1]:7000", ["[2001:db8::1]:7000"]],
    [
      ["a", "b:1", "a:9091"],
      ["a:9091", "b:1"],
    ],
  ])("%j are read", (given, expected) => {
    expect(resolveAddresses(given, 9_091)).toEqual(expected);
  });

  it.each([
    "",
    ":9091",
    "host:0",
    "host:70000",
    "http://host:9091",
    "host:9091/path",
    "user@host",
    "::1",
    "a b",
    [],
    undefined,
    [undefined],
    Array.from({ length: 65 }, (_, index) => `host-${index}`),
  ])("%j are refused", (given) => {
    expect(() => resolveAddresses(given, 9_091)).toThrow(ConfigError);
  });
});
