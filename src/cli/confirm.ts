import { ConflictError } from "../base/errors.ts";
import { UsageError } from "./errors.ts";
import { isInteractive } from "./output.ts";

/** Asks before something that cannot be undone. Where nobody can answer, --yes is required. */
export async function confirm(question: string, flags: { readonly yes?: boolean }): Promise<void> {
  if (flags.yes === true) return;
  if (!isInteractive()) {
    throw new UsageError(`${question} Nobody can answer here: add --yes to go on`);
  }
  const clack = await import("@clack/prompts");
  const answer = await clack.confirm({ message: `${question} Go on?`, initialValue: false });
  if (answer !== true) throw new ConflictError("nothing was changed");
}
