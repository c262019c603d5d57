import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
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
  /** Where its servers and histories go, so that nothing of them is left. */
  readonly temporary: string;
  readonly #remove = (): void => this[Symbol.dispose]();

  constructor(edits: readonly Edit[]) {
    const texts = applyEdits(edits, (file) => readFileSync(join(ROOT, file), "utf8"));
    this.folder = mkdtempSync(join(scratch(), "tidemill-mutant-"));
    this.temporary = join(this.folder, "tmp");
    process.once("exit", this.#remove); // Also when it is interrupted.
    cpSync(ROOT, this.folder, {
      recursive: true,
      filter: (path) => !NOT_COPIED.has(basename(path)),
    });
    symlinkSync(join(ROOT, "node_modules"), join(this.folder, "node_modules"));
    mkdirSync(this.temporary);
    chmodSync(this.folder, 0o755); // As root a server runs as another user.
    for (const [file, text] of texts) writeFileSync(join(this.folder, file), text);
  }

  /** A run that had to be ended leaves its server behind, which is a process group of its own. */
  #stopServers(): void {
    for (const name of readdirSync(this.temporary)) {
      try {
        const file = readFileSync(join(this.temporary, name, "data", "postmaster.pid"), "utf8");
        process.kill(Number.parseInt(file, 10), "SIGQUIT");
      } catch {
        // It has stopped, or was none.
      }
    }
  }

  [Symbol.dispose](): void {
    process.removeListener("exit", this.#remove);
    this.#stopServers();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
