import { describe, expect, it } from "vitest";
import { serverArguments } from "./server-process.ts";

describe("serverArguments", () => {
  it("listens on loopback and on a socket in the data directory", () => {
    const line = serverArguments("/data", 5433, {}).join(" ");
    expect(line).toBe(
      '-D /data -p 5433 -c listen_addresses=127.0.0.1 -c unix_socket_directories="/data"',
    );
  });

  it("does without the socket where its path would not fit into an address", () => {
    const args = serverArguments(`/${"long/".repeat(20)}data`, 5433, {});
    expect(args.at(-1)).toBe("unix_socket_directories=");
  });

  it("puts the given settings first, so that they cannot override ours", () => {
    const args = serverArguments("/data", 5433, { fsync: "off" });
    expect(args.indexOf("fsync=off")).toBeLessThan(args.indexOf("listen_addresses=127.0.0.1"));
  });
});
