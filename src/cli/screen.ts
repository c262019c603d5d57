import { stripVTControlCharacters } from "node:util";
import { isTerminal, print, printRaw } from "./output.ts";

const ESCAPE = "\u001B[";
/** A change of colour. */
const COLOUR = new RegExp(`(${ESCAPE.replace("[", "\\[")}[0-9;]*m)`);
const HIDE_CURSOR = "\u001B[?25l";
const SHOW_CURSOR = "\u001B[?25h";
const ERASE_BELOW = "\u001B[0J";
const RESET = "\u001B[0m";

/** A view that replaces itself on a terminal. The last one stays when it ends. */
export class LiveScreen {
  #drawn = 0;
  readonly #restore = (): void => printRaw(SHOW_CURSOR);

  constructor() {
    printRaw(HIDE_CURSOR);
    process.once("exit", this.#restore); // A second Ctrl-C must not leave the cursor hidden.
  }

  draw(lines: readonly string[]): void {
    const columns = process.stdout.columns || 80;
    const rows = process.stdout.rows || 24; // Some terminals answer 0.
    const shown = lines.slice(0, Math.max(1, rows - 1)).map((line) => cutToWidth(line, columns));
    const up = this.#drawn === 0 ? "" : `\u001B[${this.#drawn}A`;
    printRaw(`${up}\r${ERASE_BELOW}${shown.join("\n")}\n`);
    this.#drawn = shown.length;
  }

  end(): void {
    process.off("exit", this.#restore);
    this.#restore();
  }
}

/** Shows one view after the other: in place on a terminal, below each other in a pipe. */
export function openScreen(): Pick<LiveScreen, "draw" | "end"> {
  if (isTerminal()) return new LiveScreen();
  return { draw: (lines) => print(`${lines.join("\n")}\n`), end: () => {} };
}

/** A line that wraps would shift the redrawing. Colours take no room and are kept. */
export function cutToWidth(line: string, columns: number): string {
  if (stripVTControlCharacters(line).length < columns) return line;
  let room = columns - 2;
  let kept = "";
  for (const part of line.split(COLOUR)) {
    if (part.startsWith(ESCAPE)) {
      kept += part;
      continue;
    }
    kept += part.slice(0, room);
    room = Math.max(0, room - part.length);
  }
  return `${kept}${RESET}…`;
}
