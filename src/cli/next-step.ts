import type { Command } from "commander";
import { nearest } from "../base/options.ts";

export interface Mistake {
  /** Of commander, such as "commander.unknownCommand". */
  readonly code: string;
  readonly program: Command;
  /** What was typed after the name of the program. */
  readonly args: readonly string[];
}

/** What is wrong with a command line, and the command to try next. */
export function withNextStep(said: string, mistake: Mistake): string {
  const { code, program, args } = mistake;
  const { command, path, rest } = reached(program, args);
  const help = `"${[...path, "--help"].join(" ")}"`;
  if (code !== "commander.unknownCommand" && code !== "commander.excessArguments") {
    return `${ended(said)} ${help} shows how`;
  }
  const [typed] = rest;
  const candidates = typed === undefined ? [] : meant(program, command, path, typed);
  const what = typed === undefined ? said : `unknown command '${typed}'`;
  if (code === "commander.excessArguments" && candidates.length === 0) {
    return `${ended(said)} ${help} shows how`;
  }
  if (candidates.length === 0) return `${what}; ${help} lists all`;
  const tried = candidates.map((one) => `"${one}"`).join(" or ");
  return `${what}; did you mean ${tried}? ${help} lists all`;
}

const ended = (said: string): string => (/[.?)]$/.test(said) ? said : `${said};`);

interface Reached {
  readonly command: Command;
  /** How it is called. */
  readonly path: readonly string[];
  /** What was typed behind it, without flags. */
  readonly rest: readonly string[];
}

/** The command that was named, as far as there is one. */
function reached(program: Command, args: readonly string[]): Reached {
  const words = args.filter((arg) => !arg.startsWith("-"));
  let command = program;
  const path = [program.name()];
  for (const [place, word] of words.entries()) {
    const next = visible(command).find((one) => one.name() === word);
    if (next === undefined) return { command, path, rest: words.slice(place) };
    command = next;
    path.push(word);
  }
  return { command, path, rest: [] };
}

const visible = (command: Command): Command[] => [...command.createHelp().visibleCommands(command)];

/** One that is spelled alike, else those of the same name elsewhere. */
function meant(
  program: Command,
  command: Command,
  path: readonly string[],
  typed: string,
): readonly string[] {
  const names = visible(command).map((one) => one.name());
  const near = nearest(typed, names);
  if (near !== undefined) return [[...path, near].join(" ")];
  return visible(program).flatMap((group) =>
    visible(group)
      .filter((one) => one.name() === typed)
      .map((one) => [program.name(), group.name(), one.name()].join(" ")),
  );
}
