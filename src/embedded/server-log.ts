import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";
import { codeOf, readIfPresent } from "./files.ts";

const FOLLOW_EVERY_MS = 100;
const CHUNK_BYTES = 64 * 1024;

/**
 * The server writes its log to a file, not to a pipe of ours: a pipe would stall it whenever this
 * process is stopped in a debugger, and would be gone for whoever adopts the server later. Every
 * start begins the file anew, which bounds it for a development server.
 */
export function logPath(dataDir: string): string {
  return join(dataDir, "server.log");
}

export async function lastLogLines(dataDir: string, count = 20): Promise<string> {
  const text = (await readIfPresent(logPath(dataDir))) ?? "";
  return text.trimEnd().split("\n").slice(-count).join("\n");
}

/** Hands each line of a growing log to `onLine` until `stop`, which first hands over the rest. */
export class LogFollower {
  readonly #path: string;
  readonly #onLine: (line: string) => void;
  readonly #timer: NodeJS.Timeout;
  #decoder = new StringDecoder("utf8");
  #offset: number;
  #partial = "";

  /** @param from where to begin: everything there is, or only what is written from now on */
  constructor(path: string, from: "start" | "end", onLine: (line: string) => void) {
    this.#path = path;
    this.#onLine = onLine;
    this.#offset = from === "start" ? 0 : sizeOf(path);
    this.#timer = setInterval(() => this.#read(), FOLLOW_EVERY_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#read();
    if (this.#partial !== "") this.#onLine(this.#partial);
    this.#partial = "";
  }

  #read(): void {
    const file = openIfPresent(this.#path);
    if (file === undefined) return;
    try {
      // A shorter file is that of a server started since.
      if (fstatSync(file).size < this.#offset) this.#restart();
      const chunk = Buffer.alloc(CHUNK_BYTES);
      for (;;) {
        const count = readSync(file, chunk, 0, CHUNK_BYTES, this.#offset);
        if (count === 0) return;
        this.#offset += count;
        this.#take(this.#decoder.write(chunk.subarray(0, count)));
      }
    } finally {
      closeSync(file);
    }
  }

  #restart(): void {
    this.#offset = 0;
    this.#partial = "";
    this.#decoder = new StringDecoder("utf8");
  }

  #take(text: string): void {
    const lines = (this.#partial + text).split("\n");
    this.#partial = lines.pop() ?? "";
    for (const line of lines) this.#onLine(line);
  }
}

function openIfPresent(path: string): number | undefined {
  try {
    return openSync(path, "r");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function sizeOf(path: string): number {
  const file = openIfPresent(path);
  if (file === undefined) return 0;
  try {
    return fstatSync(file).size;
  } finally {
    closeSync(file);
  }
}
