import { textOf } from "./repository.ts";

/** Settled by trial; adding one needs a decision record in docs/adr. */
export const RUNTIME_PACKAGES: readonly string[] = [
  "@bufbuild/protobuf",
  "@clack/prompts",
  "@grpc/grpc-js",
  "@hono/node-server",
  "@hono/zod-openapi",
  "@opentelemetry/api",
  "commander",
  "croner",
  "grpc-health-check",
  "hono",
  "jose",
  "pg",
  "@types/pg", // Types only: see docs/adr/0005-types-of-pg.md.
  "picocolors",
  "pino",
  "zod",
];

/** Who uses this part installs them: nobody else is to need them. By the folder that may. */
export const OPTIONAL_PEERS: Readonly<Record<string, readonly string[]>> = {
  "src/kafka/kafkajs/": ["kafkajs"],
  "src/kafka/platformatic/": ["@platformatic/kafka"],
};

/** Have a script that nothing needs: that of protobufjs compares a version and at most warns. */
export const NEEDLESS_SCRIPTS: readonly string[] = ["node_modules/protobufjs"];

interface LockedPackage {
  readonly version?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly hasInstallScript?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

export const manifest = (): Manifest => JSON.parse(textOf("package.json")) as Manifest;

export function lockedPackages(): ReadonlyMap<string, LockedPackage> {
  const lock = JSON.parse(textOf("package-lock.json")) as {
    packages: Record<string, LockedPackage>;
  };
  return new Map(Object.entries(lock.packages));
}

/** Paths in the lock file of everything that a user of the package installs. */
export function runtimeClosure(): string[] {
  const locked = lockedPackages();
  const found = new Set<string>();
  const visit = (from: string, name: string): void => {
    const path = lockedPath(locked, from, name);
    if (path === undefined || found.has(path)) return;
    found.add(path);
    const { dependencies, optionalDependencies } = locked.get(path) ?? {};
    for (const next of Object.keys({ ...dependencies, ...optionalDependencies })) visit(path, next);
  };
  for (const name of Object.keys(manifest().dependencies ?? {})) visit("", name);
  return [...found];
}

/** The nearest installed copy, looked up as Node does: in every folder from here to the root. */
export function lockedPath(
  locked: ReadonlyMap<string, LockedPackage>,
  from: string,
  name: string,
): string | undefined {
  const parts = from.split("/").filter((part) => part !== "");
  for (let depth = parts.length; depth >= 0; depth -= 1) {
    const path = [...parts.slice(0, depth), "node_modules", name].join("/");
    if (locked.has(path)) return path;
  }
  return undefined;
}
