import { Counter, Gauge, Histogram, type HistogramSeries } from "../base/metrics.ts";
import type { ClaimedTask } from "./claimed-task.ts";
import type { Settlement } from "./sql/finish.ts";

/** What this process did with tasks. docs/reference/metrics.md says what each one means. */
export class TaskMetrics {
  readonly enqueued = new Counter("tidemill_tasks_enqueued_total", "Tasks enqueued");
  readonly claims = new Counter("tidemill_task_claims_total", "Tasks claimed");
  readonly completions = new Counter("tidemill_task_completions_total", "Tasks completed");
  readonly failures = new Counter("tidemill_task_failures_total", "Attempts that failed");
  readonly retries = new Counter("tidemill_task_retries_total", "Attempts put back to run again");
  readonly deadLetters = new Counter("tidemill_task_dead_letters_total", "Tasks dead-lettered");
  readonly leaseLosses = new Counter("tidemill_task_lease_losses_total", "Leases lost");
  readonly renewals = new Counter("tidemill_task_renewals_total", "Leases renewed");
  readonly reaped = new Counter("tidemill_tasks_reaped_total", "Tasks taken from lost workers");
  readonly promoted = new Counter("tidemill_tasks_promoted_total", "Scheduled tasks made pending");
  readonly limitWaits = new Counter("tidemill_task_limit_waits_total", "Claims a limit held back");
  readonly turns = new Counter("tidemill_task_turns_total", "Turns that ended for another tenant");
  readonly running = new Gauge("tidemill_tasks_running", "Handlers running now");
  readonly oldestPending = new Gauge(
    "tidemill_task_oldest_pending_seconds",
    "Age of the oldest task that could run",
  );
  readonly duration = new Histogram("tidemill_task_duration_seconds", "Time a handler took");

  readonly #hot = new Map<string, { completions: { value: number }; duration: HistogramSeries }>();

  ended(task: ClaimedTask, settlement: Settlement, nowMs: number): void {
    const hot = this.#hotSeries(task.queue);
    if (task.startedAtMs > 0) {
      this.duration.observeIn(hot.duration, (nowMs - task.startedAtMs) / 1000);
    }
    if (settlement.kind === "complete") {
      hot.completions.value += 1;
      return;
    }
    const { outcome } = settlement.row;
    const labels = { queue: task.queue };
    if (outcome !== "abandoned" && outcome !== "cancelled") {
      this.failures.add(1, { ...labels, outcome });
    }
    if (settlement.kind === "put-back" && !settlement.row.refund) this.retries.add(1, labels);
    if (settlement.kind === "bury") {
      this.deadLetters.add(1, { ...labels, cause: settlement.row.cause });
    }
  }

  #hotSeries(queue: string): { completions: { value: number }; duration: HistogramSeries } {
    let hot = this.#hot.get(queue);
    if (hot === undefined) {
      const labels = { queue };
      hot = {
        completions: this.completions.series(labels),
        duration: this.duration.series(labels),
      };
      this.#hot.set(queue, hot);
    }
    return hot;
  }

  text(): string {
    return Object.values(this)
      .map((metric: Counter | Gauge | Histogram) => metric.text())
      .join("\n");
  }
}
