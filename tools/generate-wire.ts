import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PROTO = join(ROOT, "proto");
export const PROTO_FILES: readonly string[] = [
  "codeq/worker.proto",
  "codeq/producer.proto",
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

/** Writes the types, codecs and service definitions of all of `proto/` into an empty folder. */
export function generateWire(folder: string): void {
  const { resolve } = createRequire(import.meta.url);
  const compiler = join(resolve("protoc/package.json"), "../protoc.cjs");
  const plugin = join(resolve("ts-proto/package.json"), "../protoc-gen-ts_proto");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  execFileSync(
    process.execPath,
    [
      compiler,
      `--plugin=protoc-gen-ts_proto=${plugin}`,
      `--ts_proto_out=${folder}`,
      `--ts_proto_opt=${OPTIONS.join(",")}`,
      `--proto_path=${PROTO}`,
      ...PROTO_FILES,
    ],
    { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] },
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  generateWire(join(ROOT, "src/wire/generated"));
}
