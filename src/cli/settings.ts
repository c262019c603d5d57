import { type Command, InvalidArgumentError, Option } from "commander";
import { nearest } from "../base/options.ts";
import { UsageError } from "./errors.ts";

/** A flag that the environment may give as well: `--drain-seconds` is `TIDEMILL_DRAIN_SECONDS`. */
export interface Setting {
  /** With its value, such as "--http <address>"; one without is a switch. */
  readonly flags: string;
  readonly says: string;
  readonly read?: (text: string) => unknown;
}

const PREFIX = "TIDEMILL_";

export function addSettings(command: Command, settings: readonly Setting[]): void {
  for (const { flags, says, read } of settings) {
    const option = new Option(flags);
    option.description = `${says} [${variableOf(option)}]`;
    if (read !== undefined) option.argParser(read);
    command.addOption(option);
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Fills in what no flag gave. Empty counts as not given. */
export function readEnvironment(
  command: Command,
  settings: readonly Setting[],
  environment: Environment,
): void {
  for (const { flags, read } of settings) {
    const option = new Option(flags);
    const name = option.attributeName();
    const text = environment[variableOf(option)] ?? "";
    if (text === "" || command.getOptionValueSource(name) !== undefined) continue;
    const value = valueOf(option, text, read);
    if (value !== undefined) command.setOptionValueWithSource(name, value, "env");
  }
}

function valueOf(option: Option, text: string, read: Setting["read"]): unknown {
  try {
    return option.isBoolean() ? switchOf(text) : (read?.(text) ?? text);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw new UsageError(`${variableOf(option)} is not right. ${error.message}`);
  }
}

/** Undefined for off, which is what a switch is without its flag. */
function switchOf(text: string): true | undefined {
  if (/^(1|true|yes|on)$/i.test(text)) return true;
  if (/^(0|false|no|off)$/i.test(text)) return undefined;
  throw new InvalidArgumentError("It must be 1 or 0, true or false, on or off.");
}

/** Variables that look like a typo of one of these; others with the prefix are somebody else's. */
export function likelyTypos(
  settings: readonly Setting[],
  environment: Environment,
): { readonly given: string; readonly meant: string }[] {
  const known = [...settings.map(({ flags }) => variableOf(new Option(flags))), "TIDEMILL_DEBUG"];
  return Object.keys(environment).flatMap((given) => {
    if (!given.startsWith(PREFIX) || known.includes(given)) return [];
    const meant = nearest(given, known);
    return meant === undefined ? [] : [{ given, meant }];
  });
}

const variableOf = ({ long }: Option): string =>
  `${PREFIX}${(long ?? "").slice(2).replaceAll("-", "_").toUpperCase()}`;
