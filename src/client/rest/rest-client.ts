import { HttpCaller, type RestAnswer, type RestCall, type RestOptions } from "./http-call.ts";
import { RestDeadLetters, RestQueues } from "./rest-admin.ts";
import { RestEvents } from "./rest-events.ts";
import { type FeedEvent, type FeedOptions, readFeed } from "./rest-feed.ts";
import { RestTasks } from "./rest-tasks.ts";

/**
 * The HTTP interface with types: for programs that act now and then, where a stream would be idle.
 * Errors are those of the server. It holds no connection that must be closed.
 */
export class RestClient {
  readonly tasks: RestTasks;
  readonly events: RestEvents;
  readonly queues: RestQueues;
  readonly deadLetters: RestDeadLetters;
  readonly #http: HttpCaller;

  constructor(options: RestOptions) {
    this.#http = new HttpCaller(options);
    this.tasks = new RestTasks(this.#http);
    this.events = new RestEvents(this.#http);
    this.queues = new RestQueues(this.#http);
    this.deadLetters = new RestDeadLetters(this.#http);
  }

  /** What becomes of tasks, as it happens; goes on by itself when the connection breaks. */
  feed(options: FeedOptions = {}): AsyncGenerator<FeedEvent, void, undefined> {
    return readFeed(this.#http, options);
  }

  /** Any other call of the interface, with the same token, retries and errors. */
  async call(call: RestCall): Promise<RestAnswer> {
    return await this.#http.call(call);
  }
}
