import pc from "picocolors";

/** Whether a person watches and can answer. */
export function isInteractive(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY;
}

export function isTerminal(): boolean {
  return process.stdout.isTTY;
}

/**
 * Off in a pipe, also where a CI variable asks for them: the output there is for programs. In a
 * pipe `isTTY` is undefined, which picocolors would take for "decide yourself".
 */
export const colors = pc.createColors(process.stdout.isTTY ? pc.isColorSupported : false);

export function print(text = ""): void {
  process.stdout.write(`${text}\n`);
}

/** As it is, without a line end: for redrawing. */
export function printRaw(text: string): void {
  process.stdout.write(text);
}

export function printError(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** One document. Positions are bigints, and JSON numbers would lose digits: they are strings. */
export function toJson(value: unknown, indent?: number): string {
  const plain = (_: string, one: unknown): unknown => (typeof one === "bigint" ? String(one) : one);
  return JSON.stringify(value, plain, indent);
}

export function printJson(value: unknown): void {
  print(toJson(value, 2));
}

/** `tidemill status | head -1` closes the pipe early, which is no failure. */
export function tolerateClosedPipe(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    throw error;
  });
}
