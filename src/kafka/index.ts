export { connectKafka } from "./connect.ts";
export type { KafkaOptions, KafkaSaslOptions } from "./connect-options.ts";
export type { DeadMessage, DeadMessages, ListDeadMessagesOptions } from "./dead-messages.ts";
export { KafkaIngest, type TopicStatus } from "./ingest.ts";
export type { IngestTopic, KafkaIngestOptions } from "./ingest-options.ts";
export type { KafkaJob, PlacedMessage } from "./job.ts";
export type { KafkaMetrics } from "./metrics.ts";
export { type PublishEventsOptions, publishEvents } from "./publish-events.ts";
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
  Subscription,
  TopicDescription,
} from "./source.ts";
export type { PartitionStatus } from "./topic-line.ts";
