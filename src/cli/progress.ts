import { isTerminal, print } from "./output.ts";

/**
 * Says what happens now, one line each. Not a spinner: those take the keyboard, and a Ctrl-C would
 * end the process before it has stopped what it started.
 */
export async function announce(line: string): Promise<void> {
  if (!isTerminal()) {
    print(line);
    return;
  }
  const { log } = await import("@clack/prompts");
  log.step(line, { spacing: 0 });
}
