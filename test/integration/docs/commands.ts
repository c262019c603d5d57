import type { Command } from "commander";
import { buildProgram } from "../../../src/cli/program.ts";
import { blocksOf } from "./blocks.ts";

export interface WrittenCommand {
  /** `page:line` of the block. */
  readonly place: string;
  readonly text: string;
}

/** Calls of `tidemill` in the shell blocks of a page. */
export function commandsOf(page: string): WrittenCommand[] {
  return blocksOf(page, "sh").flatMap(({ line, code }) =>
    code
      .replaceAll("\\\n", " ")
      .split("\n")
      .flatMap((text) => /^(?:npx )?tidemill( .*)$/.exec(text)?.[1] ?? [])
      .map((text) => ({ place: `${page}:${line}`, text: text.trim() })),
  );
}

/** What is wrong with a call: a command or flag that does not exist, too few or many arguments. */
export function faultOf(words: readonly string[]): string | undefined {
  let command: Command = buildProgram();
  let rest = [...words];
  for (;;) {
    const [name] = rest;
    const inside = command.commands.find((one) => one.name() === name);
    if (inside === undefined) break;
    rest = rest.slice(1);
    command = inside;
  }
  const options = [command, ...parentsOf(command)].flatMap((one) => one.options);
  const given: string[] = [];
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    if (!word.startsWith("--")) {
      given.push(word);
      continue;
    }
    const [flag = "", value] = word.split("=");
    if (flag === "--help") continue;
    const option = options.find(({ long }) => long === flag);
    if (option === undefined) return `${command.name()} has no ${flag}`;
    if (option.required && value === undefined && rest.shift() === undefined) {
      return `${flag} needs a value`;
    }
  }
  const expected = command.registeredArguments;
  const least = expected.filter(({ required }) => required).length;
  const most = expected.some(({ variadic }) => variadic)
    ? Number.POSITIVE_INFINITY
    : expected.length;
  if (given.length >= least && given.length <= most) return undefined;
  return `${command.name()} does not take ${given.join(" ") || "nothing"}`;
}

function parentsOf(command: Command): Command[] {
  return command.parent === null ? [] : [command.parent, ...parentsOf(command.parent)];
}

/** Words of a line; what is quoted is one. Ends where the line goes on to something else. */
export function wordsOf(text: string): string[] {
  const words = text.match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  const end = words.findIndex((word) => /^(\||&&|>|<|#|;)/.test(word));
  return end < 0 ? words : words.slice(0, end);
}
