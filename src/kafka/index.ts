export { connectKafka } from "./connect.ts";
export type { KafkaOptions, KafkaSaslOptions } from "./connect-options.ts";
export type { DeadMessage, DeadMessages, ListDeadMessagesOptions } from "./dead-messages.ts";
export type { EndedTask } from "./ended-task.ts";
export { KafkaIngest, type TopicStatus } from "./ingest.ts";
export type { IngestTopic, KafkaIngestOptions } from "./ingest-options.ts";
export type { KafkaJob, PlacedMessage } from "./job.ts";
export type { KafkaMetrics } from "./metrics.ts";
export { type PublishEventsOptions, publishEvents } from "./publish-events.ts";
export type { PublishTasksOptions } from "./publish-tasks.ts";
export { type KeptMessage, type ListRefusedOptions, RefusedMessages } from "./refused-messages.ts";
export type {
  FetchedBatch,
  KafkaClient,
  KafkaHeader,
  KafkaMessage,
  KafkaSink,
  KafkaSource,
  MemberListener,
  Membership,
  NewTopic,
  OffsetRange,
  OutgoingMessage,
  RefusedMessage,
  Subscription,
  TopicDescription,
} from "./source.ts";
export {
  listTaskPublications,
  removeTaskPublication,
  type TaskPublication,
} from "./task-publications.ts";
export { KafkaTaskPublisher } from "./task-publisher.ts";
export type { TaskPublisherMetrics } from "./task-publisher-metrics.ts";
export type { PartitionStatus } from "./topic-line.ts";
