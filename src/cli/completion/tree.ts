import type { Command, Option } from "commander";

/** A flag, as shells have to know it. */
export interface Flag {
  /** All its spellings, such as "--help" and "-h". */
  readonly names: readonly string[];
  readonly says: string;
  readonly takesValue: boolean;
  /** What its value may be; none: anything. */
  readonly choices: readonly string[];
}

/** A command, or a group of them, by the words that lead to it. */
export interface Place {
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly says: string }[];
  /** Words that may follow instead of a command. */
  readonly words: readonly string[];
  /** Those of the groups above it included. */
  readonly flags: readonly Flag[];
}

/** Every place of the command line, the top first. What is hidden is not among them. */
export function placesOf(program: Command): Place[] {
  return walk(program, "", []);
}

function walk(command: Command, path: string, above: readonly Flag[]): Place[] {
  const own = command.options.filter(({ hidden }) => !hidden).map(toFlag);
  const flags = [...own, ...above];
  const shown = command.createHelp().visibleCommands(command);
  const commands = shown.map((one) => ({ name: one.name(), says: one.description() }));
  const words = command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  const help: Flag = { names: ["--help", "-h"], says: "show help", takesValue: false, choices: [] };
  return [
    { path, commands, words, flags: [...flags, help] },
    ...shown.flatMap((one) => walk(one, path === "" ? one.name() : `${path} ${one.name()}`, flags)),
  ];
}

function toFlag({ long, short, description, required, optional, argChoices }: Option): Flag {
  return {
    names: [long, short].filter((name) => name !== undefined && name !== null),
    says: description,
    takesValue: required || optional,
    choices: argChoices ?? [],
  };
}
