import { Counter, Gauge } from "../base/metrics.ts";

/** What this process published of tasks. docs/reference/metrics.md says what each one means. */
export class TaskPublisherMetrics {
  readonly ends = new Counter(
    "tidemill_kafka_published_ends_total",
    "Ends of tasks that are published, refused or left out",
  );
  readonly failures = new Counter(
    "tidemill_kafka_publish_failures_total",
    "Failures of Kafka or of the database, which are tried again",
  );
  readonly waiting = new Gauge(
    "tidemill_kafka_waiting_ends",
    "Ends of tasks that are not published yet",
  );
  readonly waitingSeconds = new Gauge(
    "tidemill_kafka_waiting_ends_seconds",
    "Since when the oldest of them waits",
  );
  readonly heldSeconds = new Gauge(
    "tidemill_kafka_ends_held_seconds",
    "For how long an open transaction holds them up",
  );
  readonly isPublishing = new Gauge("tidemill_kafka_is_publishing", "Whether it is this process");

  text(): string {
    return Object.values(this)
      .map((metric: Counter | Gauge) => metric.text())
      .join("\n");
  }
}
