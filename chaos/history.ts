import { appendFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Entry, What } from "../src/checker/history.ts";

const FLUSH_MS = 20;
const SUFFIX = ".jsonl";
const fileOf = (folder: string, proc: string): string => join(folder, `${proc}${SUFFIX}`);

/** Appends entries to the file of this process. A kill loses the last few milliseconds of it. */
export class HistoryWriter implements Disposable {
  readonly #file: string;
  readonly #proc: string;
  readonly #timer: NodeJS.Timeout;
  #lines: string[] = [];

  constructor(folder: string, proc: string) {
    this.#file = fileOf(folder, proc);
    this.#proc = proc;
    this.#timer = setInterval(() => this.flush(), FLUSH_MS);
    this.#timer.unref();
  }

  add(what: What): void {
    const entry: Entry = { t: Date.now(), proc: this.#proc, what };
    this.#lines.push(JSON.stringify(entry));
  }

  flush(): void {
    if (this.#lines.length === 0) return;
    const lines = this.#lines;
    this.#lines = [];
    appendFileSync(this.#file, `${lines.join("\n")}\n`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.flush();
  }
}

/** All files of a run. */
export function readHistories(folder: string): Entry[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(SUFFIX))
    .flatMap((name) => readHistory(folder, name.slice(0, -SUFFIX.length)));
}

/**
 * The last line of a process that was killed may be torn, and is left out. One that has not written
 * anything has no file.
 */
export function readHistory(folder: string, proc: string): Entry[] {
  const file = fileOf(folder, proc);
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").flatMap(parse) : [];
}

function parse(line: string): Entry[] {
  try {
    return line === "" ? [] : [JSON.parse(line) as Entry];
  } catch {
    return [];
  }
}
