import { AskedGauge, Counter, Gauge, Histogram } from "../base/metrics.ts";

/**
 * What this process did with webhooks, notices and calls of tasks. docs/reference/metrics.md says
 * what each one means.
 */
export class DeliveryMetrics {
  readonly outcomes = new Counter(
    "tidemill_webhook_attempts_total",
    "Calls of webhooks by outcome",
  );
  readonly dead = new Counter("tidemill_webhook_dead_total", "Webhook deliveries given up");
  readonly late = new Counter("tidemill_webhook_late_total", "Outcomes that came too late");
  readonly disabled = new Counter("tidemill_webhook_disabled_total", "Endpoints disabled by a 410");
  readonly calling = new Gauge("tidemill_webhooks_calling", "Calls of webhooks under way");
  readonly duration = new Histogram("tidemill_webhook_call_seconds", "Time a call took");
  readonly jobCalls = new Counter("tidemill_http_job_calls_total", "Calls of tasks by outcome");
  readonly jobsGivenBack = new Counter(
    "tidemill_http_jobs_given_back_total",
    "Tasks sent away because their target was broken or full",
  );
  readonly jobsCalling = new Gauge("tidemill_http_jobs_calling", "Calls of tasks under way");
  readonly targetsBroken = new AskedGauge("tidemill_http_targets_broken", "Targets not called now");
  readonly jobDuration = new Histogram("tidemill_http_job_seconds", "Time a call of a task took");
  readonly notices = new Counter("tidemill_notices_total", "Calls of subscriptions by outcome");
  readonly noticing = new Gauge("tidemill_notices_calling", "Calls of subscriptions under way");
  readonly noticeDuration = new Histogram("tidemill_notice_call_seconds", "Time a notice took");
  readonly subscriptionsFailing = new Counter(
    "tidemill_subscriptions_failing_total",
    "Subscriptions that began to fail",
  );

  text(): string {
    return Object.values(this)
      .map((metric: AskedGauge | Counter | Gauge | Histogram) => metric.text())
      .join("\n");
  }
}
