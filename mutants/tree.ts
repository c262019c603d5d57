import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { scratch } from "../test/support/scratch.ts";
import { applyEdits } from "./edits.ts";
import type { Edit } from "./mutant.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** What is made from the rest, or belongs to this machine. */
const NOT_COPIED = new Set([".git", ".test-build", "dist", "node_modules"]);

/** A copy of the project in which something is broken. */
export class Tree implements Disposable {
  readonly folder: string;

  constructor(edits: readonly Edit[]) {
    const texts = applyEdits(edits, (file) => readFileSync(join(ROOT, file), "utf8"));
    this.folder = mkdtempSync(join(scratch(), "tidemill-mutant-"));
    cpSync(ROOT, this.folder, {
      recursive: true,
      filter: (path) => !NOT_COPIED.has(basename(path)),
    });
    symlinkSync(join(ROOT, "node_modules"), join(this.folder, "node_modules"));
    for (const [file, text] of texts) writeFileSync(join(this.folder, file), text);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
