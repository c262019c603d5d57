import { ConfigError } from "../../base/errors.ts";
import type { TaskContext } from "../../tasks/context.ts";
import { type ContextActs, HandlerContext } from "../../tasks/handler-context.ts";
import type { RemoteTask } from "./remote-task.ts";

/** How the context reaches the server. */
export type RemoteContextActs = ContextActs<RemoteTask>;

/** Of a handler that runs through a server. */
export class RemoteContext
  extends HandlerContext<RemoteTask, RemoteContextActs>
  implements TaskContext
{
  /** A transaction cannot cross the wire. */
  complete(): Promise<void> {
    return Promise.reject(
      new ConfigError(
        "complete(tx) needs a worker with the database, and this one runs through a server: " +
          "return completed(result) instead, or run this handler with mill.startWorker",
      ),
    );
  }
}
