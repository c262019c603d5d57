import { type Command, Option } from "commander";
import { instant, priority, seconds, taskId, wholeNumber } from "./options.ts";
import { addCallOptions } from "./program-http.ts";

const ATTEMPTS_MAX = 2 ** 31 - 1;
const STATES = ["scheduled", "pending", "running", "completed", "failed", "dead", "cancelled"];
const PAYLOAD = "JSON, @file, or - for standard input";

/** What a person does with single tasks. */
export function addTaskCommands(program: Command): void {
  const task = program.command("task").description("enqueue, find, cancel or retry tasks");
  addEnqueue(task);
  addReading(task);
  addActing(task);
  program
    .command("why")
    .description("say in a sentence why a task does not run")
    .argument("<task>", "its id", taskId)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { explainTask } = await import("./commands/task.ts");
      await explainTask(id, command.optsWithGlobals());
    });
}

/** Options that schedules give to their tasks, too. */
export function addTaskOptions(command: Command): Command {
  return addCallOptions(command)
    .option("--kind <kind>", "what sort of task it is, for people and filters")
    .option(
      "--priority <priority>",
      "high, normal, low, or 0 to 9 (default: the queue's)",
      priority,
    )
    .option("--key <key>", "tasks of one key run one after another")
    .option("--max-attempts <n>", "default: the queue's", wholeNumber(1, ATTEMPTS_MAX))
    .option("--timeout <seconds>", "a longer attempt has failed (default: the queue's)", seconds)
    .option("--webhook <webhook>", "told when the task ends: a URL, or the id of an endpoint")
    .option("--tenant <tenant>", 'whose task it is (default: "default")');
}

function addEnqueue(task: Command): void {
  const enqueue = task
    .command("enqueue")
    .description("store a task, and print its id")
    .argument("<queue>", "one that is registered")
    .argument("<payload>", PAYLOAD);
  addTaskOptions(enqueue)
    .addOption(
      new Option("--run-at <instant>", "not before, such as 2026-01-31T09:00:00Z")
        .argParser(instant)
        .conflicts("delay"),
    )
    .option("--delay <seconds>", "not before so many seconds from now", seconds)
    .option("--idempotency-key <key>", "enqueue once: the same key again gives the first task")
    .option("--wait", "wait for the result, and print it")
    .addOption(
      new Option("--wait-timeout <seconds>", "how long; implies --wait")
        .argParser(seconds)
        .default(30)
        .implies({ wait: true }),
    )
    .option("--json", "print one JSON document")
    .action(async (queue: string, payload: string, _: object, command: Command) => {
      const { enqueueTask } = await import("./commands/task.ts");
      await enqueueTask(queue, payload, command.optsWithGlobals());
    });
}

function addReading(task: Command): void {
  task
    .command("get")
    .description("show all there is to know of a task")
    .argument("<id>", "its id", taskId)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { getTask } = await import("./commands/task.ts");
      await getTask(id, command.optsWithGlobals());
    });
  task
    .command("list")
    .description("show tasks, newest first")
    .option("--queue <name>", "only of this queue")
    .addOption(new Option("--state <state>", "only in this state").choices(STATES))
    .option("--key <key>", "only of this key")
    .option("--tenant <tenant>", "only of this tenant")
    .option("--before <id>", "only older ones: the last id of the page before", taskId)
    .option("--limit <n>", "at most so many", wholeNumber(1, 1_000), 50)
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listTasks } = await import("./commands/task.ts");
      await listTasks(command.optsWithGlobals());
    });
}

function addActing(task: Command): void {
  task
    .command("cancel")
    .description("keep a task from running, or tell its handler to stop")
    .argument("<id>", "its id", taskId)
    .option("--reason <text>", "kept and shown")
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { cancelTask } = await import("./commands/task.ts");
      await cancelTask(id, command.optsWithGlobals());
    });
  task
    .command("retry")
    .description("run a task now that waits for its time, or that failed, died or was cancelled")
    .argument("<id>", "its id", taskId)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { retryTask } = await import("./commands/task.ts");
      await retryTask(id, command.optsWithGlobals());
    });
}
