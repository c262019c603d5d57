import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { generateWire, PROTO_FILES } from "../../../tools/generate-wire.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** Texts by path, of all files below a folder. */
function textsOf(folder: string): Map<string, string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  return new Map(
    files
      .filter((file) => file.isFile())
      .map((file) => join(file.parentPath, file.name))
      .sort()
      .map((path) => [path.slice(folder.length + 1), readFileSync(path, "utf8")]),
  );
}

function missingTool(): string | undefined {
  const { resolve } = createRequire(import.meta.url);
  for (const name of ["protoc", "ts-proto"]) {
    try {
      if (existsSync(resolve(`${name}/package.json`))) continue;
    } catch {
      // Reported below.
    }
    return `${name} is not installed`;
  }
  return undefined;
}

it("what is checked in is what `npm run generate` writes", (context) => {
  const missing = missingTool();
  if (missing !== undefined) context.skip(missing);
  const folder = mkdtempSync(join(tmpdir(), "tidemill-wire-"));
  try {
    generateWire(folder);
    expect(textsOf(join(ROOT, "src/wire/generated"))).toEqual(textsOf(folder));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it("every file of proto/ is generated from", () => {
  const found = [...textsOf(join(ROOT, "proto")).keys()].filter((path) => path.endsWith(".proto"));
  expect(found).toEqual(PROTO_FILES.toSorted());
});
