import { Counter, Gauge, Histogram } from "../base/metrics.ts";

/** What this server did. docs/reference/metrics.md says what each one means. */
export class ServerMetrics {
  readonly streams = new Gauge("tidemill_streams", "Streams that are open now");
  readonly creates = new Counter("tidemill_creates_total", "Creates of producers, by outcome");
  readonly createBytes = new Gauge("tidemill_create_bytes", "Bytes of creates under way");
  readonly createCommit = new Histogram(
    "tidemill_create_commit_seconds",
    "Time a transaction of creates took",
  );

  text(): string {
    return [this.streams, this.creates, this.createBytes, this.createCommit]
      .map((metric) => metric.text())
      .join("\n");
  }
}
