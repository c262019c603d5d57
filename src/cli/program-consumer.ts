import type { Command } from "commander";
import { position, wholeNumber } from "./options.ts";
import { addRebuildCommands } from "./program-rebuild.ts";

const PARTITIONS_MAX = 1_024;

/** What an operator does to one consumer. */
export function addConsumerCommands(program: Command): void {
  const consumer = program.command("consumer").description("list, stop, move or forget consumers");
  addReading(consumer);
  addStopping(consumer);
  addMoving(consumer);
  addForgetting(consumer);
  addRebuildCommands(consumer);
}

function addReading(consumer: Command): void {
  consumer
    .command("list")
    .description("show every consumer, or partition of one, and how far it is")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listConsumers } = await import("./commands/consumer.ts");
      await listConsumers(command.optsWithGlobals());
    });
}

function addStopping(consumer: Command): void {
  consumer
    .command("pause")
    .description("stop a consumer after its batch in flight")
    .argument("<name>")
    .option("--reason <text>", "kept and shown")
    .action(async (name: string, _: object, command: Command) => {
      const { pauseConsumer } = await import("./commands/consumer.ts");
      await pauseConsumer(name, command.optsWithGlobals());
    });
  consumer
    .command("resume")
    .description("let a paused or quarantined consumer go on; replay what it parked")
    .argument("<name>")
    .action(async (name: string, _: object, command: Command) => {
      const { resumeConsumer } = await import("./commands/consumer.ts");
      await resumeConsumer(name, command.optsWithGlobals());
    });
}

function addMoving(consumer: Command): void {
  consumer
    .command("rewind")
    .description("handle the events above a position again")
    .argument("<name>")
    .requiredOption("--to <position>", "0 is the beginning", position)
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { rewindConsumer } = await import("./commands/consumer.ts");
      await rewindConsumer(name, command.optsWithGlobals());
    });
  consumer
    .command("skip")
    .description("pass one event for ever: the poison event, else the next one")
    .argument("<name>")
    .requiredOption("--reason <text>", "kept with the skip")
    .option("--position <position>", "this one, an event or a missing position", position)
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { skipEvent } = await import("./commands/consumer.ts");
      await skipEvent(name, command.optsWithGlobals());
    });
}

function addForgetting(consumer: Command): void {
  consumer
    .command("retire")
    .description("forget a consumer that no program has any more")
    .argument("<name>")
    .option("--force", "even while a running worker has it")
    .option("--yes", "do not ask")
    .action(async (name: string, _: object, command: Command) => {
      const { retireConsumer } = await import("./commands/consumer.ts");
      await retireConsumer(name, command.optsWithGlobals());
    });
  consumer
    .command("repartition")
    .description("split a consumer anew, while nobody runs it")
    .argument("<name>")
    .requiredOption("--partitions <n>", "how many", wholeNumber(1, PARTITIONS_MAX))
    .action(async (name: string, _: object, command: Command) => {
      const { repartitionConsumer } = await import("./commands/consumer.ts");
      await repartitionConsumer(name, command.optsWithGlobals());
    });
}
