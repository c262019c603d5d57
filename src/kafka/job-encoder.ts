import { BoundedMap } from "../base/bounded-map.ts";
import type { KnownQueue, QueueDirectory } from "../tasks/directory.ts";
import { type EncodedTask, TaskEncoder } from "../tasks/encode.ts";
import type { NewTask } from "../tasks/new-task.ts";
import { DEFAULT_TENANT } from "../tasks/task.ts";

/** Of one queue. Delays and dates make new ones all the time. */
const SHAPES_MAX = 1_000;
const ENCODERS_MAX = 1_000;

/** Checks the tasks of jobs as an enqueue does. A queue that nobody defined is introduced. */
export class JobEncoder {
  readonly #directory: QueueDirectory;
  readonly #queuesMax: number;
  readonly #encoders = new BoundedMap<string, { queue: KnownQueue; encoder: TaskEncoder }>(
    ENCODERS_MAX,
  );

  /** @param queuesMax queues that one tenant may introduce */
  constructor(directory: QueueDirectory, queuesMax: number) {
    this.#directory = directory;
    this.#queuesMax = queuesMax;
  }

  /** Most need nothing that must be waited for. Throws when it can never be a task. */
  encode(name: string, task: NewTask): EncodedTask | Promise<EncodedTask> {
    const known = this.#directory.peek(name);
    const isKeyed = task.partitionKey !== undefined;
    if (known !== undefined && !(isKeyed && known.isOpen)) {
      return this.#encoderOf(known).encode(task);
    }
    return this.#find(name, task).then((found) => this.#encoderOf(found).encode(task));
  }

  async #find(name: string, task: NewTask): Promise<KnownQueue> {
    const { tenant = DEFAULT_TENANT, partitionKey } = task;
    const known = await this.#directory.findOrIntroduce(name, {
      tenant,
      queuesMax: this.#queuesMax,
    });
    return partitionKey === undefined ? known : await this.#directory.withSettledKeys(known);
  }

  #encoderOf(queue: KnownQueue): TaskEncoder {
    const known = this.#encoders.get(queue.name);
    if (known?.queue === queue && known.encoder.shapeCount < SHAPES_MAX) return known.encoder;
    const encoder = new TaskEncoder(this.#directory, queue, undefined);
    this.#encoders.set(queue.name, { queue, encoder });
    return encoder;
  }
}
