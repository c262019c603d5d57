import { Counter, Gauge, Histogram } from "../base/metrics.ts";

/** What this process did with Kafka. docs/reference/metrics.md says what each one means. */
export class KafkaMetrics {
  readonly messages = new Counter(
    "tidemill_kafka_messages_total",
    "Messages that became tasks, or are dead",
  );
  readonly moved = new Counter(
    "tidemill_kafka_offsets_moved_total",
    "Transactions undone because somebody else had stored the messages",
  );
  readonly failures = new Counter(
    "tidemill_kafka_failures_total",
    "Failures of Kafka or of the database, which were tried again",
  );
  readonly rebalances = new Counter(
    "tidemill_kafka_assignments_total",
    "Times that a group gave partitions to this process",
  );
  readonly skipped = new Counter(
    "tidemill_kafka_skipped_offsets_total",
    "Offsets that Kafka had removed before they were read, and that were given up",
  );
  readonly buffered = new Gauge("tidemill_kafka_buffered_messages", "Messages that wait in memory");
  readonly bufferedBytes = new Gauge("tidemill_kafka_buffered_bytes", "Their bytes");
  readonly partitions = new Gauge("tidemill_kafka_partitions", "Partitions that are read here");
  readonly stopped = new Gauge(
    "tidemill_kafka_stopped_partitions",
    "Partitions that are not read until a person decides",
  );
  readonly lag = new Gauge("tidemill_kafka_lag_messages", "Messages that are no tasks yet");
  readonly duration = new Histogram("tidemill_kafka_store_seconds", "Time a transaction took");

  text(): string {
    return Object.values(this)
      .map((metric: Counter | Gauge | Histogram) => metric.text())
      .join("\n");
  }
}
