import type { Command } from "commander";
import { list, wholeNumber } from "./options.ts";

const PARTITIONS_MAX = 1_024;

/** Rebuilding a projection beside itself. */
export function addRebuildCommands(consumer: Command): void {
  const rebuild = consumer
    .command("rebuild")
    .description("build the tables of a projection anew, compare, swap, roll back");
  addBuilding(rebuild);
  addStopping(rebuild);
  addSwapping(rebuild);
  addEnding(rebuild);
}

function addBuilding(rebuild: Command): void {
  rebuild
    .command("start")
    .description("make copies of its tables and have workers fill them from the whole log")
    .argument("<name>")
    .option("--partitions <n>", "how many workers take part", wholeNumber(1, PARTITIONS_MAX))
    .option("--reason <text>", "kept and shown")
    .option("--wait", "show the progress until it has caught up")
    .action(async (name: string, _: object, command: Command) => {
      const { startRebuild } = await import("./commands/rebuild.ts");
      await startRebuild(name, command.optsWithGlobals());
    });
  rebuild
    .command("status")
    .description("how far it is, how fast, and how long it will take")
    .argument("<name>")
    .option("--wait", "show the progress until it has caught up")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { showRebuild } = await import("./commands/rebuild.ts");
      await showRebuild(name, command.optsWithGlobals());
    });
}

function addStopping(rebuild: Command): void {
  rebuild
    .command("pause")
    .description("stop filling the copies; the projection itself goes on")
    .argument("<name>")
    .option("--reason <text>", "kept and shown")
    .action(async (name: string, _: object, command: Command) => {
      const { pauseRebuild } = await import("./commands/rebuild.ts");
      await pauseRebuild(name, command.optsWithGlobals());
    });
  rebuild
    .command("resume")
    .description("let a paused or quarantined rebuild go on")
    .argument("<name>")
    .action(async (name: string, _: object, command: Command) => {
      const { resumeRebuild } = await import("./commands/rebuild.ts");
      await resumeRebuild(name, command.optsWithGlobals());
    });
}

function addSwapping(rebuild: Command): void {
  rebuild
    .command("compare")
    .description("compare both sides at one position, row by row; exits with 1 if they differ")
    .argument("<name>")
    .option("--ignore <columns>", "columns that may differ, with commas between", list)
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { compareRebuild } = await import("./commands/rebuild.ts");
      await compareRebuild(name, command.optsWithGlobals());
    });
  rebuild
    .command("swap")
    .description("put the rebuilt tables in the place of the live ones, and keep those")
    .argument("<name>")
    .option("--force", "even if every rebuilt table is empty")
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { swapRebuild } = await import("./commands/rebuild.ts");
      await swapRebuild(name, command.optsWithGlobals());
    });
  rebuild
    .command("rollback")
    .description("put the tables from before the swap back")
    .argument("<name>")
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { rollBackRebuild } = await import("./commands/rebuild.ts");
      await rollBackRebuild(name, command.optsWithGlobals());
    });
}

function addEnding(rebuild: Command): void {
  rebuild
    .command("cancel")
    .description("end a rebuild that is not swapped in, and drop the rebuilt tables")
    .argument("<name>")
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { cancelRebuild } = await import("./commands/rebuild.ts");
      await cancelRebuild(name, command.optsWithGlobals());
    });
  rebuild
    .command("forget")
    .description("drop the tables from before the swap")
    .argument("<name>")
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { forgetRebuild } = await import("./commands/rebuild.ts");
      await forgetRebuild(name, command.optsWithGlobals());
    });
}
