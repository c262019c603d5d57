import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import { modernProgram } from "./program.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** A program that answers each line with a line of JSON, and ends when nobody speaks to it. */
export class Spoken implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #lines: Interface;
  readonly #exit: Promise<unknown>;

  private constructor(file: URL, options: object) {
    const { command, args } = modernProgram(file);
    this.#process = spawn(command, [...args, JSON.stringify(options)], {
      cwd: ROOT,
      stdio: ["pipe", "pipe", process.stderr],
    });
    if (this.#process.stdout === null) throw new Error("the program cannot be heard");
    this.#lines = createInterface({ input: this.#process.stdout });
    this.#exit = once(this.#process, "exit");
  }

  /** Resolves when it has said that it is ready. */
  static async start(file: URL, options: object): Promise<Spoken> {
    const program = new Spoken(file, options);
    await program.#answer();
    return program;
  }

  async ask<Answer>(line: string): Promise<Answer> {
    const answer = this.#answer();
    this.#process.stdin?.write(`${line}\n`);
    return JSON.parse(await answer) as Answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.stdin?.end();
    await this.#exit;
  }

  async #answer(): Promise<string> {
    const gone = this.#exit.then((): never => {
      throw new Error("the program has ended");
    });
    const said = once(this.#lines, "line") as Promise<[string]>;
    const [line] = await Promise.race([said, gone]);
    return line;
  }
}

/** The other side: calls `answer` for each line, and ends with its input. */
export async function listen(answer: (line: string) => Promise<object>): Promise<void> {
  process.stdout.write(`${JSON.stringify({ ready: true })}\n`);
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
  }
}
