import { ConfigError } from "../base/errors.ts";
import { refuseUnknown } from "../base/options.ts";
import type { NewEvent, StreamRef } from "../events/event.ts";
import type { NewTask } from "../tasks/new-task.ts";
import type { Queue, QueueDefinition } from "../tasks/queue.ts";

/** An event that is about to be appended, as a route sees it. */
export interface RoutedEvent<Data = unknown> {
  readonly stream: StreamRef;
  readonly id: string;
  readonly type: string;
  readonly data: Data;
  readonly metadata: unknown;
  readonly traceId: string | undefined;
  readonly correlationId: string | undefined;
}

export interface RouteOptions<Input, Data> {
  /** Events of these types cause a task. */
  readonly eventTypes: readonly string[];
  /** Only of streams of these types. Defaults to all. */
  readonly streamTypes?: readonly string[];
  readonly queue: Queue<unknown, unknown, Input>;
  /** The task that the event causes; undefined when it causes none. */
  readonly task: (event: RoutedEvent<Data>) => NewTask<Input> | undefined;
}

/** Says that an appended event causes a task, in the append's own transaction. */
export interface Route {
  readonly name: string;
  readonly eventTypes: readonly string[];
  readonly streamTypes: readonly string[] | undefined;
  readonly queue: QueueDefinition;
  task(event: RoutedEvent): NewTask | undefined;
}

/** Defines a route. Give it to `Tidemill.connect` of every process that appends such events. */
export function route<Input, Data = unknown>(
  name: string,
  options: RouteOptions<Input, Data>,
): Route {
  if (typeof name !== "string" || name.trim() === "") {
    throw new ConfigError("a route needs a name that is not empty");
  }
  refuseUnknown(`route "${name}"`, options, ["eventTypes", "streamTypes", "queue", "task"]);
  if (!Array.isArray(options.eventTypes) || options.eventTypes.length === 0) {
    throw new ConfigError(`route "${name}" needs eventTypes: at least one`);
  }
  if (typeof options.task !== "function" || typeof options.queue?.name !== "string") {
    throw new ConfigError(`route "${name}" needs queue: a queue(...), and task: a function`);
  }
  const { eventTypes, streamTypes, queue, task } = options;
  return Object.freeze({ name, eventTypes, streamTypes, queue, task } as Route);
}

/** An event that was appended just now. */
export type AppendedEvent = NewEvent & { readonly id: string; readonly position: bigint };

/**
 * The tasks that these events cause, by queue, in the order of the events. Each names its event;
 * such tasks differ in more than payload and key, and so do not wait in packs.
 */
export function tasksOf(
  routes: readonly Route[],
  stream: StreamRef,
  events: readonly AppendedEvent[],
): Map<QueueDefinition, NewTask[]> {
  const tasks = new Map<QueueDefinition, NewTask[]>();
  for (const event of events) {
    for (const one of routes) {
      if (!concerns(one, stream, event.type)) continue;
      const task = one.task({
        stream,
        id: event.id,
        type: event.type,
        data: event.data,
        metadata: event.metadata,
        traceId: event.traceId,
        correlationId: event.correlationId,
      });
      if (task === undefined) continue;
      const list = tasks.get(one.queue) ?? [];
      list.push({ causedBy: String(event.position), ...task });
      tasks.set(one.queue, list);
    }
  }
  return tasks;
}

export function concerns(one: Route, stream: StreamRef, eventType: string): boolean {
  if (!one.eventTypes.includes(eventType)) return false;
  return one.streamTypes === undefined || one.streamTypes.includes(stream.type);
}

export function checkRoutes(routes: readonly Route[]): void {
  const seen = new Set<string>();
  for (const one of routes) {
    if (typeof one?.task !== "function") throw new ConfigError("routes must be made by route(...)");
    if (seen.has(one.name)) throw new ConfigError(`two routes are named "${one.name}"`);
    seen.add(one.name);
  }
}
