import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmdirSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { scratch } from "../test/support/scratch.ts";

const execute = promisify(execFile);

/** Enough for a long run. It is memory, of which only what is written is taken. */
const BYTES = 8 * 1024 ** 3;

/** Why no file system can be made on this machine. */
export function whyNoDisk(): string | undefined {
  if (process.platform !== "linux") return "only Linux has tmpfs";
  return process.getuid?.() === 0 ? undefined : "only root may mount a file system";
}

/** A file system of its own for the server, which can be filled to the last byte. */
export class Disk {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async mount(): Promise<Disk> {
    const folder = mkdtempSync(join(scratch(), "tidemill-disk-"));
    await execute("mount", ["-t", "tmpfs", "-o", `size=${BYTES},mode=755`, "tmpfs", folder]);
    return new Disk(folder);
  }

  /** Leaves no room. What is freed later can be used again, until this is called again. */
  async fill(): Promise<void> {
    const { blocks, bfree, bsize } = statfsSync(this.folder);
    await this.#resize((blocks - bfree) * bsize).catch(() => {}); // More may be in use by now.
  }

  async free(): Promise<void> {
    await this.#resize(BYTES);
  }

  async #resize(bytes: number): Promise<void> {
    await execute("mount", ["-o", `remount,size=${bytes}`, this.folder]);
  }

  /** Whoever still uses it goes on with what is no longer in any folder. */
  abandon(): void {
    execFileSync("umount", ["--lazy", this.folder]);
    rmdirSync(this.folder);
  }
}
