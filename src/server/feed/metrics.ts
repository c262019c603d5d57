import { Counter, Gauge } from "../../base/metrics.ts";

/** What the feed of this server does; docs/reference/metrics.md says what each one means. */
export class FeedMetrics {
  readonly clients = new Gauge("tidemill_feed_clients", "Clients that read the feed here now");
  readonly changes = new Counter(
    "tidemill_feed_changes_total",
    "Changes that were read, whether or not somebody wanted them",
  );
  readonly missed = new Counter(
    "tidemill_feed_missed_total",
    "Changes that clients were told they have missed, because they read too slowly",
  );
  readonly heldSeconds = new Gauge(
    "tidemill_feed_held_seconds",
    "How long an open transaction has kept what is behind it from being told",
  );

  text(): string {
    const all = Object.values(this) as (Counter | Gauge)[];
    return all.map((metric) => metric.text()).join("\n");
  }
}
