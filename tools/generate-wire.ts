import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { descriptorModule } from "./descriptors.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PROTO = join(ROOT, "proto");
export const PROTO_FILES: readonly string[] = [
  "codeq/worker.proto",
  "codeq/producer.proto",
  "grpc/reflection/v1/reflection.proto",
  "tidemill/v1/stream.proto",
  "tidemill/v1/worker.proto",
  "tidemill/v1/producer.proto",
];

/** `Date` keeps milliseconds of a timestamp, like every other time in the library. */
const OPTIONS = [
  "env=node",
  "esModuleInterop=true",
  "forceLong=bigint",
  "importSuffix=.ts",
  "oneof=unions-value",
  "outputJsonMethods=false",
  "outputServices=grpc-js",
  "useDate=true",
  "useExactTypes=false",
];

/** Served as well, by the package that brings it. */
const HEALTH = "health/v1/health.proto";

/**
 * Writes the types, codecs and service definitions of all of `proto/` into an empty folder, and
 * their descriptors.
 */
export function generateWire(folder: string): void {
  const { resolve } = createRequire(import.meta.url);
  const protoc = (...flags: readonly string[]): void => {
    execFileSync(
      process.execPath,
      [join(resolve("protoc/package.json"), "../protoc.cjs"), `--proto_path=${PROTO}`, ...flags],
      { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] },
    );
  };
  const plugin = join(resolve("ts-proto/package.json"), "../protoc-gen-ts_proto");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  protoc(
    `--plugin=protoc-gen-ts_proto=${plugin}`,
    `--ts_proto_out=${folder}`,
    `--ts_proto_opt=${OPTIONS.join(",")}`,
    ...PROTO_FILES,
  );
  const set = join(folder, "descriptors.bin");
  const health = join(resolve("grpc-health-check/package.json"), "../proto");
  const out = ["--include_imports", `--descriptor_set_out=${set}`];
  protoc(`--proto_path=${health}`, ...out, ...PROTO_FILES, HEALTH);
  writeFileSync(join(folder, "descriptors.ts"), descriptorModule(readFileSync(set)));
  rmSync(set);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  generateWire(join(ROOT, "src/wire/generated"));
}
