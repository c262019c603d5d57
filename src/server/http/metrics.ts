import { Counter, Gauge, Histogram } from "../../base/metrics.ts";

/** What the REST API counts; docs/reference/metrics.md says what each one means. */
export class HttpMetrics {
  readonly requests = new Counter(
    "tidemill_http_requests_total",
    "Requests by method, path of the endpoint and status.",
  );
  readonly duration = new Histogram(
    "tidemill_http_request_seconds",
    "Time until the answer was ready, by path of the endpoint.",
  );
  readonly limited = new Counter(
    "tidemill_http_rate_limited_total",
    "Requests refused because their tenant called too often.",
  );
  readonly waits = new Gauge("tidemill_http_waits", "Requests that wait for something now.");

  text(): string {
    const all = Object.values(this) as (Counter | Gauge | Histogram)[];
    return all.map((metric) => metric.text()).join("\n");
  }
}
