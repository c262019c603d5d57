import { type Command, Option } from "commander";
import { wholeNumber } from "./options.ts";
import { addTaskOptions } from "./program-task.ts";

/** What a person does with schedules. */
export function addScheduleCommands(program: Command): void {
  const schedule = program
    .command("schedule")
    .description("list, add, stop, remove or run schedules of tasks");
  addReading(schedule);
  addMaking(schedule);
  addStopping(schedule);
  addActing(schedule);
}

function addReading(schedule: Command): void {
  schedule
    .command("list")
    .description("show every schedule, when it fires next and when it did last")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listSchedules } = await import("./commands/schedule.ts");
      await listSchedules(command.optsWithGlobals());
    });
}

function addMaking(schedule: Command): void {
  const add = schedule
    .command("add")
    .description("enqueue a task at every tick of a cron expression")
    .argument("<name>")
    .requiredOption("--cron <expression>", 'five or six fields, or such as "@daily"')
    .requiredOption("--queue <name>", "one that is registered")
    .option("--payload <json>", "JSON, @file, or - for standard input (default: null)")
    .option("--time-zone <zone>", 'such as Europe/Berlin (default: "UTC")')
    .addOption(
      new Option(
        "--catch-up <policy>",
        "of ticks that nobody was there to fire (default: once)",
      ).choices(["skip", "once", "all"]),
    )
    .option(
      "--catch-up-max <n>",
      "ticks that all makes up for at once (default: 100)",
      wholeNumber(1, Number.MAX_SAFE_INTEGER),
    );
  addTaskOptions(add)
    .option("--yes", "do not ask before one of that name is replaced")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { addSchedule } = await import("./commands/schedule.ts");
      await addSchedule(name, command.optsWithGlobals());
    });
}

function addStopping(schedule: Command): void {
  schedule
    .command("pause")
    .description("fire no tick until it is resumed")
    .argument("<name>")
    .option("--tenant <tenant>", 'whose schedule it is (default: "default")')
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { pauseSchedule } = await import("./commands/schedule.ts");
      await pauseSchedule(name, command.optsWithGlobals());
    });
  schedule
    .command("resume")
    .description("let a paused schedule go on with its next tick")
    .argument("<name>")
    .option("--tenant <tenant>", 'whose schedule it is (default: "default")')
    .option("--catch-up", "treat the ticks of the pause as its policy says, not as past")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { resumeSchedule } = await import("./commands/schedule.ts");
      await resumeSchedule(name, command.optsWithGlobals());
    });
}

function addActing(schedule: Command): void {
  schedule
    .command("run-now")
    .description("enqueue the task of a schedule once, now")
    .argument("<name>")
    .option("--tenant <tenant>", 'whose schedule it is (default: "default")')
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { runScheduleNow } = await import("./commands/schedule.ts");
      await runScheduleNow(name, command.optsWithGlobals());
    });
  schedule
    .command("remove")
    .description("forget a schedule; tasks that it enqueued stay")
    .argument("<name>")
    .option("--tenant <tenant>", 'whose schedule it is (default: "default")')
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { removeSchedule } = await import("./commands/schedule.ts");
      await removeSchedule(name, command.optsWithGlobals());
    });
}
