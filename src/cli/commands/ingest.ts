import { KafkaIngest } from "../../kafka/ingest.ts";
import { type KafkaFlags, runKafka } from "./kafka.ts";

/** `tidemill ingest kafka`: until a signal, then the transactions under way end. */
export async function runKafkaIngest(flags: KafkaFlags): Promise<void> {
  await runKafka(flags, {
    part: "ingest",
    begun: "ingesting",
    make: (mill, client, options) => new KafkaIngest(mill, client, options),
  });
}
