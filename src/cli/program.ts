import { Argument, Command, Option } from "commander";
import { VERSION } from "../base/version.ts";
import { SHELLS, type Shell } from "./completion/scripts.ts";
import { type GlobalFlags, interval, wholeNumber } from "./options.ts";
import { addConsumerCommands } from "./program-consumer.ts";
import { addDeadCommands } from "./program-dead.ts";
import { addKafka } from "./program-kafka.ts";
import { addKeyCommands } from "./program-key.ts";
import { addQueueCommands } from "./program-queue.ts";
import { addRing } from "./program-ring.ts";
import { addScheduleCommands } from "./program-schedule.ts";
import { addServe } from "./program-serve.ts";
import { addSubscriptionCommands } from "./program-subscription.ts";
import { addTaskCommands } from "./program-task.ts";
import { addTenantCommands } from "./program-tenant.ts";
import { addWebhookCommands } from "./program-webhook.ts";

/** More is for benchmarks. */
const RATE_MAX = 2_000;
const COUNT_MAX = Number.MAX_SAFE_INTEGER;

/**
 * The command line: which commands and flags there are. What a command does is loaded when it runs,
 * so that help and mistakes answer at once.
 */
export function buildProgram(writeErr?: (text: string) => void): Command {
  const program = new Command("tidemill")
    .configureOutput(writeErr === undefined ? {} : { writeErr })
    .description("Durable work on PostgreSQL: an event log with projection consumers, and tasks.")
    .version(VERSION, "--version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand(false)
    .configureHelp({ showGlobalOptions: true })
    .exitOverride();
  addGlobalOptions(program);
  addDev(program);
  addServe(program);
  addKafka(program);
  addMigrate(program);
  addStatus(program);
  addTop(program);
  addConsumerCommands(program);
  addTaskCommands(program);
  addQueueCommands(program);
  addRing(program);
  addDeadCommands(program);
  addScheduleCommands(program);
  addWebhookCommands(program);
  addSubscriptionCommands(program);
  addKeyCommands(program);
  addTenantCommands(program);
  addCompletion(program);
  return program;
}

function addGlobalOptions(program: Command): void {
  program
    .option("--database-url <url>", "the database (default: DATABASE_URL)")
    .option("--direct-url <url>", "its own address, when the first leads through a pooler")
    .option("--schema <name>", 'schema of tables without one (default: "tidemill")')
    .addOption(
      new Option("--column-family <family>", "spelling of the log's columns").choices([
        "stream",
        "aggregate",
      ]),
    )
    .option("--debug", "show the stack of an error (also TIDEMILL_DEBUG=1)");
  program.optionsGroup("Table names (table or schema.table):");
  for (const name of [
    "events",
    "stream-heads",
    "worker-nodes",
    "consumer-assignments",
    "consumer-checkpoints",
    "consumer-gap-skips",
    "leader-election",
  ]) {
    const table = name === "leader-election" ? "worker_leader_election" : name.replace("-", "_");
    program.option(`--${name}-table <name>`, `default: ${table.replaceAll("-", "_")}`);
  }
}

function addDev(program: Command): void {
  program
    .command("dev")
    .description("start a PostgreSQL, a server and a demo workload, and watch it run")
    .option("--data-dir <dir>", "where the embedded PostgreSQL keeps its data")
    .option("--postgres-port <port>", "its port (default: a free one)", wholeNumber(1, 65_535))
    .option("--workers <n>", "worker processes", wholeNumber(1, 8), 2)
    .option("--rate <n>", "events appended per second", wholeNumber(0, RATE_MAX), 20)
    .option("--no-server", "start no server, and so no dashboard")
    .option("--dashboard <folder>", "another build of the dashboard")
    .option("--once", "run for two seconds, check every event, and exit")
    .action(async (_: object, command: Command) => {
      const { runDev } = await import("./commands/dev.ts");
      await runDev(command.optsWithGlobals());
    });
  program.command("dev-worker", { hidden: true }).action(async () => {
    const { runWorkerProcess } = await import("./demo/worker-process.ts");
    await runWorkerProcess();
  });
}

function addMigrate(program: Command): void {
  const migrate = program
    .command("migrate")
    .description("create or upgrade the tables")
    .option("--dry-run", "say what would be applied, and apply nothing")
    .option("--json", "print one JSON document")
    .addOption(
      new Option(
        "--partition-strategy <strategy>",
        "layout of a new event log (default: none)",
      ).choices(["none", "native"]),
    )
    .option(
      "--partition-size <n>",
      "positions per partition (default: 10,000,000)",
      wholeNumber(1, COUNT_MAX),
    )
    .option(
      "--initial-partitions <n>",
      "partitions kept ahead of the log (default: 4)",
      wholeNumber(1, 10_000),
    )
    .action(async (_: object, command: Command) => {
      const { runMigrate } = await import("./commands/migrate.ts");
      await runMigrate(command.optsWithGlobals());
    });
  migrate
    .command("generate")
    .description("write the tables as an SQL file, connecting to nothing")
    .option("--output <folder>", "folder, made when missing", "migrations")
    .option("--filename <name>", "default: YYYYMMDDhhmmss_init_tidemill.sql")
    .option("--force", "replace a file of that name")
    .action(async (_: object, command: Command) => {
      const { runGenerate } = await import("./commands/generate.ts");
      await runGenerate(command.optsWithGlobals());
    });
}

function addStatus(program: Command): void {
  program
    .command("status")
    .description("show workers, leader, consumers, queues, lag and open gaps")
    .option("--all", "show workers that stopped, too")
    .option("--json", "print one JSON document")
    .option("--watch", "show it again every second")
    .action(async (_: object, command: Command) => {
      const { runStatus } = await import("./commands/status.ts");
      await runStatus(command.optsWithGlobals<GlobalFlags>());
    });
}

function addTop(program: Command): void {
  program
    .command("top")
    .description("watch queues, workers and the lag of consumers; q quits")
    .option("--interval <seconds>", "between two looks", interval, 2)
    .option("--count <n>", "end after so many looks", wholeNumber(1, COUNT_MAX))
    .action(async (_: object, command: Command) => {
      const { runTop } = await import("./commands/top.ts");
      await runTop(command.optsWithGlobals());
    });
}

function addCompletion(program: Command): void {
  program
    .command("completion")
    .description("print a script that completes commands and flags in a shell")
    .addArgument(new Argument("<shell>").choices(SHELLS))
    .action(async (shell: Shell) => {
      const { printCompletion } = await import("./commands/completion.ts");
      printCompletion(shell, program);
    });
}
