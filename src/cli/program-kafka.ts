import type { Command } from "commander";
import type { KafkaFlags } from "./commands/kafka.ts";
import { oneOf } from "./options.ts";
import { LOG_LEVELS, place } from "./serve/settings.ts";

/** What comes in from Kafka, and what goes out to it. */
export function addKafka(program: Command): void {
  const ingest = program.command("ingest").description("make tasks of what others write");
  withFlags(ingest.command("kafka"), "ingest")
    .description("make a task of each message of Kafka topics, until a signal")
    .action(async (_: object, command: Command) => {
      const { runKafkaIngest } = await import("./commands/ingest.ts");
      await runKafkaIngest(command.optsWithGlobals<KafkaFlags>());
    });
  const publish = program.command("publish").description("tell others what became of tasks");
  withFlags(publish.command("kafka"), "publish")
    .description("publish ends of tasks to a Kafka topic, until a signal")
    .action(async (_: object, command: Command) => {
      const { runKafkaPublisher } = await import("./commands/publish.ts");
      await runKafkaPublisher(command.optsWithGlobals<KafkaFlags>());
    });
}

const withFlags = (command: Command, part: string): Command =>
  command
    .requiredOption("--config <file>", `JSON with "kafka" and "${part}"`)
    .option("--metrics <place>", "[host:]port of metrics, or off (default: off)", place)
    .option("--log-level <level>", `${LOG_LEVELS.join(", ")} (default: info)`, oneOf(LOG_LEVELS));
