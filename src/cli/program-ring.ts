import { type Command, Option } from "commander";
import { wholeNumber } from "./options.ts";

/** Who owns which keys. */
export function addRing(program: Command): void {
  program
    .command("ring")
    .description("show who owns the buckets of keys, and who would after a change")
    .option("--queue <name>", "only the key space of this queue")
    .option("--tenant <tenant>", "only the keys of this tenant")
    .option("--key <key>", "show its bucket and owner")
    .addOption(
      new Option("--join <n>", "suppose that so many workers come")
        .argParser(wholeNumber(1, 100))
        .conflicts("leave"),
    )
    .option("--leave <worker>", "suppose that this worker goes: its id, or how it begins")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { showRing } = await import("./commands/ring.ts");
      await showRing(command.optsWithGlobals());
    });
}
