import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { OnFailure } from "./consumer.ts";
import type { ConsumerMetrics } from "./metrics.ts";

/** What every consumer loop of a worker shares; resolved from the worker's options. */
export interface ConsumerSettings {
  readonly workerId: string;
  readonly batchSize: number;
  readonly batchPauseMs: number;
  readonly batchTimeoutMs: number;
  readonly pollIntervalMs: number;
  readonly maxPollIntervalMs: number;
  readonly maxConsecutiveFailures: number;
  readonly onFailure: OnFailure;
  readonly gapPolicy: "epoch" | "unsafe-time";
  readonly staleGapThresholdMs: number;
  readonly staleGapHarborLag: number;
  readonly changesChannel: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: ConsumerMetrics;
}
