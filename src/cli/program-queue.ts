import type { Command } from "commander";
import { concurrency, instant, rate, seconds, wholeNumber } from "./options.ts";
import { addCallOptions } from "./program-http.ts";

const ATTEMPTS_MAX = 2 ** 31 - 1;

/** What a person does with queues and their keys. */
export function addQueueCommands(program: Command): void {
  const queue = program.command("queue").description("list, stop or limit queues and their keys");
  addReading(queue);
  addDefining(queue);
  addStopping(queue);
  addLimits(queue);
  addKeys(queue);
}

function addReading(queue: Command): void {
  queue
    .command("list")
    .description("show every queue: depth, running and dead tasks, limits")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listQueues } = await import("./commands/queue.ts");
      await listQueues(command.optsWithGlobals());
    });
}

function addDefining(queue: Command): void {
  const define = queue
    .command("define-http")
    .description("define a queue whose tasks are HTTP calls, or make it what is given")
    .argument("<name>");
  addCallOptions(define)
    .option("--max-attempts <n>", "of each task (default: 5)", wholeNumber(1, ATTEMPTS_MAX))
    .option("--timeout <seconds>", "a longer call has failed (default: 30)", seconds)
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { defineHttpQueue } = await import("./commands/queue.ts");
      await defineHttpQueue(name, command.optsWithGlobals());
    });
}

function addStopping(queue: Command): void {
  queue
    .command("pause")
    .description("start nothing more of a queue; what runs goes on")
    .argument("<name>")
    .option("--reason <text>", "kept and shown")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { pauseQueue } = await import("./commands/queue.ts");
      await pauseQueue(name, command.optsWithGlobals());
    });
  queue
    .command("resume")
    .description("let a paused queue go on")
    .argument("<name>")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { resumeQueue } = await import("./commands/queue.ts");
      await resumeQueue(name, command.optsWithGlobals());
    });
}

function addLimits(queue: Command): void {
  queue
    .command("limits")
    .description("show the limits of a queue, or change those that are given")
    .argument("<name>")
    .option("--concurrency <n>", "tasks that may run at once, or none", concurrency)
    .option("--rate <count/seconds>", "starts per period, or none", rate)
    .option("--key-rate <count/seconds>", "starts of one key per period, or none", rate)
    .option("--reset", "hand them back to the definition in the code")
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { limitQueue } = await import("./commands/queue.ts");
      await limitQueue(name, command.optsWithGlobals());
    });
}

function addKeys(queue: Command): void {
  queue
    .command("pause-key")
    .description("hold back every task of one key")
    .argument("<queue>")
    .argument("<key>")
    .option("--until <instant>", "such as 2026-01-31T09:00:00Z (default: resumed)", instant)
    .option("--reason <text>", "kept and shown")
    .option("--tenant <tenant>", 'whose key it is (default: "default")')
    .option("--json", "print one JSON document")
    .action(async (name: string, key: string, _: object, command: Command) => {
      const { pauseKey } = await import("./commands/queue.ts");
      await pauseKey(name, key, command.optsWithGlobals());
    });
  queue
    .command("resume-key")
    .description("let a paused key go on")
    .argument("<queue>")
    .argument("<key>")
    .option("--tenant <tenant>", 'whose key it is (default: "default")')
    .option("--json", "print one JSON document")
    .action(async (name: string, key: string, _: object, command: Command) => {
      const { resumeKey } = await import("./commands/queue.ts");
      await resumeKey(name, key, command.optsWithGlobals());
    });
}
