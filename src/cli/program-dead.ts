import { type Command, Option } from "commander";
import { taskId, taskIds, wholeNumber } from "./options.ts";

const CAUSES = ["attempts_exhausted", "worker_lost", "invalid_payload"];

/** What a person does with tasks that died. */
export function addDeadCommands(program: Command): void {
  const dead = program
    .command("dead")
    .description("list, edit, redrive or delete tasks that ran out of attempts");
  addReading(dead);
  addRedrive(dead);
  addPurge(dead);
  dead
    .command("edit")
    .description("replace the payload of a dead letter, to redrive it afterwards")
    .argument("<id>", "its id", taskId)
    .argument("<payload>", "JSON, @file, or - for standard input")
    .option("--json", "print one JSON document")
    .action(async (id: string, payload: string, _: object, command: Command) => {
      const { editDead } = await import("./commands/dead.ts");
      await editDead(id, payload, command.optsWithGlobals());
    });
}

function addReading(dead: Command): void {
  dead
    .command("list")
    .description("show dead letters, newest first")
    .option("--queue <name>", "only of this queue")
    .option("--key <key>", "only of this key")
    .option("--tenant <tenant>", "only of this tenant")
    .option("--before <id>", "only older ones: the last id of the page before", taskId)
    .option("--limit <n>", "at most so many", wholeNumber(1, 1_000), 50)
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listDead } = await import("./commands/dead.ts");
      await listDead(command.optsWithGlobals());
    });
}

function addRedrive(dead: Command): void {
  const redrive = dead
    .command("redrive")
    .description("run dead letters again, with all their attempts");
  addFilter(redrive).action(async (ids: string[], _: object, command: Command) => {
    const { redriveDead } = await import("./commands/dead.ts");
    await redriveDead(ids, command.optsWithGlobals());
  });
}

function addPurge(dead: Command): void {
  const purge = dead.command("purge").description("delete dead letters for good");
  addFilter(purge).action(async (ids: string[], _: object, command: Command) => {
    const { purgeDead } = await import("./commands/dead.ts");
    await purgeDead(ids, command.optsWithGlobals());
  });
}

function addFilter(command: Command): Command {
  return command
    .argument("[ids...]", "only these", taskIds, [])
    .option("--queue <name>", "only of this queue")
    .addOption(new Option("--cause <cause>", "only that died of this").choices(CAUSES))
    .option("--kind <kind>", "only of this kind")
    .option("--key <key>", "only of this key")
    .option("--tenant <tenant>", "only of this tenant")
    .option("--all", "every one there is")
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document");
}
