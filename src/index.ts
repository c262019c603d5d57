export {
  CommitUnknownError,
  ConfigError,
  ConflictError,
  InvalidInputError,
  LimitError,
  NotFoundError,
  SchemaError,
  TidemillError,
  TimeoutError,
  UnavailableError,
} from "./base/errors.ts";
export { JsonText } from "./base/json-text.ts";
export type { Logger } from "./base/log.ts";
export type { Secret } from "./base/secret.ts";
export {
  EXIT_GAVE_BACK,
  runUntilSignal,
  type Stoppable,
  type Stopped,
} from "./base/stop-signal.ts";
export { VERSION } from "./base/version.ts";
export { RegistrationLostError } from "./cluster/registry.ts";
export type { ConsumerAdmin } from "./consumers/admin.ts";
export {
  type Consumer,
  type ConsumerOptions,
  type ConsumerTx,
  consumer,
  type EventHandler,
  type HandlerContext,
  type OnFailure,
} from "./consumers/consumer.ts";
export type { ConsumerMetrics } from "./consumers/metrics.ts";
export type { ParkedGroup, ParkedGroups, ParkedStreamView } from "./consumers/parked.ts";
export { ConsecutiveFailuresError } from "./consumers/poison.ts";
export type { RebuildAdmin, RebuildableStatus } from "./consumers/rebuild/admin.ts";
export type {
  CompareOptions,
  Comparison,
  TableComparison,
} from "./consumers/rebuild/compare.ts";
export { RebuildStrayError } from "./consumers/rebuild/guard.ts";
export type { RowDifference } from "./consumers/rebuild/sql/compare.ts";
export type { StartOptions as StartRebuildOptions } from "./consumers/rebuild/start.ts";
export type { RebuildProgress, RebuildStatus } from "./consumers/rebuild/status.ts";
export type { SwapOptions as SwapRebuildOptions } from "./consumers/rebuild/swap.ts";
export type { FrontierHolder } from "./consumers/sql/frontier.ts";
export type { ConsumerStatus, GapStatus, Status, WorkerStatus } from "./consumers/status.ts";
export type { WaitForOptions } from "./consumers/wait-for.ts";
export type { SqlExecutor } from "./db/executor.ts";
export {
  type GeneratedMigrations,
  type GenerateMigrationsOptions,
  generateMigrations,
} from "./db/generate.ts";
export type { MigrateResult } from "./db/migrate.ts";
export type { Migration, PartitioningOptions } from "./db/migrations.ts";
export type { ColumnFamily, NamesOptions, TableOptions } from "./db/names.ts";
export type { EgressOptions } from "./delivery/egress/options.ts";
export type { EndpointOptions } from "./delivery/endpoint.ts";
export type { HttpJobsOptions } from "./delivery/jobs/options.ts";
export type { WebhookFormat, WebhookType } from "./delivery/message.ts";
export type { DeliveryMetrics } from "./delivery/metrics.ts";
export type { NoticeMode, SubscriptionOptions } from "./delivery/notices/subscription.ts";
export type {
  AddedSubscription,
  RenewOptions,
  SubscriptionAdmin,
} from "./delivery/notices/subscription-admin.ts";
export type { Subscription } from "./delivery/notices/subscription-view.ts";
export type { DeliverOptions } from "./delivery/options.ts";
export {
  callSecret,
  verifyWebhook,
  type WebhookHeaders,
  WebhookSignatureError,
} from "./delivery/signature.ts";
export type {
  ListDeliveriesOptions,
  PutEndpoint,
  RedeliverFilter,
  RotateOptions,
  WebhookAdmin,
  WebhookFilter,
} from "./delivery/webhook-admin.ts";
export type {
  WebhookAttempt,
  WebhookDelivery,
  WebhookEndpoint,
} from "./delivery/webhook-view.ts";
export type { AppendOptions, AppendResult } from "./events/append.ts";
export type { NewEvent, PersistedEvent, StreamRef } from "./events/event.ts";
export {
  DuplicateEventError,
  type ExpectedVersion,
  WrongExpectedVersionError,
} from "./events/expected-version.ts";
export type { ReadAllOptions, ReadStreamOptions } from "./events/read.ts";
export { type Route, type RoutedEvent, type RouteOptions, route } from "./routes/route.ts";
export type {
  ListSchedulesOptions,
  ResumeOptions,
  ScheduleAdmin,
  ScheduleScope,
} from "./schedules/admin.ts";
export type {
  CatchUp,
  Schedule,
  ScheduleFiring,
  ScheduleOptions,
  ScheduleTaskOptions,
} from "./schedules/schedule.ts";
export type { TaskContext } from "./tasks/context.ts";
export type {
  ActOnManyOptions,
  DeadLetterFilter,
  DeadLetterListOptions,
  DeadLetters,
  EditOptions,
} from "./tasks/dead-letters.ts";
export type { EnqueueOptions } from "./tasks/enqueue.ts";
export type { TaskHandle } from "./tasks/handle.ts";
export type { HttpCall, HttpMethod, HttpQueueCalls } from "./tasks/http-call.ts";
export { type HttpQueueOptions, type HttpResult, httpQueue } from "./tasks/http-queue.ts";
export type { LimitChanges, LimitOptions, RateOptions } from "./tasks/limits.ts";
export type { TaskMetrics } from "./tasks/metrics.ts";
export type { NewTask, TaskOptions } from "./tasks/new-task.ts";
export {
  abandon,
  completed,
  type FailedOptions,
  failed,
  nack,
  type Outcome,
} from "./tasks/outcome.ts";
export type { Priority } from "./tasks/priority.ts";
export {
  type HandleOptions,
  type OnDeath,
  type Queue,
  type QueueOptions,
  queue,
  type TaskFunction,
  type TaskHandler,
} from "./tasks/queue.ts";
export type {
  KeyOptions,
  PauseKeyOptions,
  QueueAdmin,
  QueueView,
  RingView,
} from "./tasks/queue-admin.ts";
export { type ResultOptions, TaskFailedError } from "./tasks/results.ts";
export type { BucketLoad, KeyLoad, RingLoad } from "./tasks/ring-load.ts";
export type { StandardSchema } from "./tasks/schema.ts";
export { IdempotencyConflictError } from "./tasks/store.ts";
export {
  LeaseLostError,
  type LeaseToken,
  type Task,
  TaskCancelledError,
  type TaskState,
  TaskTimeoutError,
  WorkerStoppingError,
} from "./tasks/task.ts";
export type {
  EndedBefore,
  ListTasksOptions,
  TaskAdmin,
  TenantOptions,
} from "./tasks/task-admin.ts";
export type { TaskFailure, TaskView } from "./tasks/view.ts";
export type { ConnectOptions } from "./worker/connect.ts";
export type { WorkerOptions } from "./worker/options.ts";
export type { ScopeOptions, TenantScope } from "./worker/tenant-scope.ts";
export type { Tenants, TenantsOptions } from "./worker/tenants.ts";
export { type MigrationOptions, Tidemill } from "./worker/tidemill.ts";
export type { Worker } from "./worker/worker.ts";
