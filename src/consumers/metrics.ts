import { Counter, Gauge, Histogram } from "../base/metrics.ts";

/** What the log side of a worker counts; names and meanings are in docs/reference/metrics.md. */
export class ConsumerMetrics {
  readonly eventsHandled = new Counter(
    "tidemill_events_handled_total",
    "Events handled and committed, by consumer.",
  );
  readonly batches = new Counter(
    "tidemill_batches_total",
    "Batches by consumer and outcome (committed, drifted, vanished, lost, stopped, held, failed, " +
      "unavailable).",
  );
  readonly batchSeconds = new Histogram(
    "tidemill_batch_seconds",
    "Duration of committed batches, by consumer.",
  );
  readonly checkpoint = new Gauge(
    "tidemill_consumer_checkpoint",
    "Last position settled, by consumer, of the consumers this worker runs.",
  );
  readonly lag = new Gauge(
    "tidemill_consumer_lag",
    "Settled positions above the checkpoint, by consumer, of the consumers this worker runs.",
  );
  readonly stopped = new Gauge(
    "tidemill_consumer_stopped",
    "1 while a consumer of this worker is paused or quarantined.",
  );
  readonly quarantines = new Counter(
    "tidemill_quarantines_total",
    "Consumers stopped by a poison event, by consumer.",
  );
  readonly parked = new Counter("tidemill_parked_events_total", "Events set aside, by consumer.");
  readonly gapsCrossed = new Counter(
    "tidemill_gaps_crossed_total",
    "Batches that crossed positions without an event, by consumer and proof.",
  );
  readonly rowsRead = new Counter(
    "tidemill_log_rows_read_total",
    "Events read from the log by this process, for all its consumers together.",
  );
  readonly frontier = new Gauge(
    "tidemill_frontier_position",
    "Position up to which everything is settled, as this process knows it.",
  );
  readonly frontierHeldSeconds = new Gauge(
    "tidemill_frontier_held_seconds",
    "How long an unfinished append has kept the frontier from moving; 0 when it moves.",
  );
  readonly unassignable = new Gauge(
    "tidemill_unassignable_consumers",
    "Consumers that no live worker can run, as the leader sees them.",
  );

  text(): string {
    const all = Object.values(this) as (Counter | Gauge | Histogram)[];
    return `${all.map((metric) => metric.text()).join("\n")}\n`;
  }
}
