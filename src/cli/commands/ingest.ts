import { KafkaIngest } from "../../kafka/ingest.ts";
import { type KafkaFlags, runKafka } from "./kafka.ts";

/** `tidemill ingest kafka`: until a signal, then it drains. */
export async function runKafkaIngest(flags: KafkaFlags): Promise<void> {
  await runKafka(flags, {
    part: "ingest",
    name: "ingest",
    begun: "ingesting",
    make: (mill, client, options) => new KafkaIngest(mill, client, options),
  });
}
