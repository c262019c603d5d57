export {
  CommitUnknownError,
  ConfigError,
  ConflictError,
  ForbiddenError,
  InvalidInputError,
  LimitError,
  NotFoundError,
  TidemillError,
  TimeoutError,
  UnavailableError,
} from "../base/errors.ts";
export { JsonText } from "../base/json-text.ts";
export type { Logger } from "../base/log.ts";
export {
  EXIT_GAVE_BACK,
  runUntilSignal,
  type Stoppable,
  type Stopped,
} from "../base/stop-signal.ts";
export type { TaskContext } from "../tasks/context.ts";
export type { HttpCall, HttpMethod, HttpQueueCalls } from "../tasks/http-call.ts";
export { type HttpQueueOptions, type HttpResult, httpQueue } from "../tasks/http-queue.ts";
export {
  abandon,
  completed,
  type FailedOptions,
  failed,
  nack,
  type Outcome,
} from "../tasks/outcome.ts";
export type { Priority } from "../tasks/priority.ts";
export {
  type HandleOptions,
  type Queue,
  type QueueOptions,
  queue,
  type TaskFunction,
  type TaskHandler,
} from "../tasks/queue.ts";
export type { StandardSchema } from "../tasks/schema.ts";
export {
  LeaseLostError,
  type LeaseToken,
  type Task,
  TaskCancelledError,
  type TaskState,
  TaskTimeoutError,
  WorkerStoppingError,
} from "../tasks/task.ts";
export type { ConnectionOptions } from "./connection-options.ts";
export type { TokenSource } from "./line.ts";
export type { EnqueuedTask, EnqueueResult } from "./producer/calls.ts";
export { connectProducer, type Producer } from "./producer/producer.ts";
export type {
  ProducerOptions,
  RemoteEnqueueOptions,
  RemoteNewTask,
  RemoteTaskOptions,
} from "./producer/producer-options.ts";
export { RemoteError } from "./remote-error.ts";
export type { RestAnswer, RestCall, RestOptions } from "./rest/http-call.ts";
export type {
  DeadLetterSelection,
  QueueRecord,
  RestDeadLetters,
  RestQueues,
} from "./rest/rest-admin.ts";
export { RestClient } from "./rest/rest-client.ts";
export type {
  AppendedEvents,
  EventRecord,
  ReadEventsOptions,
  RestEvents,
  RestNewEvent,
  RestStream,
  WaitFor,
} from "./rest/rest-events.ts";
export type { FeedEvent, FeedOptions, FeedState, FeedTask } from "./rest/rest-feed.ts";
export type {
  FailureRecord,
  QueueLike,
  RestTasks,
  TaskFilter,
  TaskOutcome,
  TaskRecord,
  WaitOptions,
} from "./rest/rest-tasks.ts";
export type { ClientTlsOptions } from "./tls.ts";
export { connectWorker, type RemoteWorker, type RemoteWorkerLoad } from "./worker/worker.ts";
export type { RemoteWorkerOptions, TaskAck } from "./worker/worker-options.ts";
