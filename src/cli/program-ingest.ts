import type { Command } from "commander";
import type { IngestFlags } from "./commands/ingest.ts";
import { oneOf } from "./options.ts";
import { LOG_LEVELS, place } from "./serve/settings.ts";

/** What comes in from elsewhere. */
export function addIngest(program: Command): void {
  const ingest = program.command("ingest").description("make tasks of what others write");
  ingest
    .command("kafka")
    .description("make a task of each message of Kafka topics, until a signal")
    .requiredOption("--config <file>", 'JSON with "kafka" and "ingest"')
    .option("--metrics <place>", "[host:]port of metrics, or off (default: off)", place)
    .option("--log-level <level>", `${LOG_LEVELS.join(", ")} (default: info)`, oneOf(LOG_LEVELS))
    .action(async (_: object, command: Command) => {
      const { runKafkaIngest } = await import("./commands/ingest.ts");
      await runKafkaIngest(command.optsWithGlobals<IngestFlags>());
    });
}
