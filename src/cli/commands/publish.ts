import type { PublishTasksOptions } from "../../kafka/publish-tasks.ts";
import { KafkaTaskPublisher } from "../../kafka/task-publisher.ts";
import { type KafkaFlags, runKafka } from "./kafka.ts";

/** `tidemill publish kafka`: until a signal, then it drains. */
export async function runKafkaPublisher(flags: KafkaFlags): Promise<void> {
  await runKafka(flags, {
    part: "publish",
    name: "publisher",
    begun: "publishing",
    make: (mill, client, options) =>
      new KafkaTaskPublisher(mill, client, options as PublishTasksOptions),
  });
}
