import { InvalidInputError, LimitError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { LeaseLostError } from "../../tasks/task.ts";
import type { ActAck } from "../../wire/generated/tidemill/v1/worker.ts";
import { errorOf } from "../remote-error.ts";
import type { PendingAct } from "./act-line.ts";
import type { WireAct } from "./end-act.ts";
import type { HeldTasks } from "./held-tasks.ts";
import type { RemoteContextActs } from "./remote-context.ts";
import type { RemoteTask } from "./remote-task.ts";

export interface HandlerActsOptions {
  readonly logger: Logger;
  readonly workerId: () => string;
  readonly valueBytesMax: () => number;
  readonly add: (act: PendingAct) => void;
  readonly lose: (task: RemoteTask, error: Error) => void;
}

/** Acts of one handler that wait for their answers; it should await them. */
const OPEN_MAX = 16;

/** What a handler does through its context, and the extensions that the worker asks for itself. */
export class HandlerActs implements RemoteContextActs {
  readonly #held: HeldTasks;
  readonly #options: HandlerActsOptions;

  constructor(held: HeldTasks, options: HandlerActsOptions) {
    this.#held = held;
    this.#options = options;
  }

  get workerId(): string {
    return this.#options.workerId();
  }

  get logger(): Logger {
    return this.#options.logger;
  }

  async extend(task: RemoteTask, seconds: number): Promise<Date> {
    const { lease } = await this.#act(task, { $case: "extend", value: { seconds } });
    if (lease !== undefined) this.#held.renewed({ ...lease, token: task.token });
    return task.leaseUntil;
  }

  async progress(task: RemoteTask, json: string): Promise<void> {
    const valueJson = Buffer.from(json);
    const bytesMax = this.#options.valueBytesMax();
    if (valueJson.length > bytesMax) {
      throw new InvalidInputError(
        `progress has ${valueJson.length} bytes, over the ${bytesMax} that a message takes`,
      );
    }
    await this.#act(task, { $case: "progress", value: { valueJson } });
  }

  /** Renewals of the server do not come: ask for one. */
  renew(task: RemoteTask): void {
    task.isRenewing = true;
    this.#options.add({
      task,
      act: { $case: "extend", value: { seconds: 0 } },
      onAck: ({ failure, lease }) => {
        if (failure === undefined) {
          if (lease === undefined) this.#held.notRenewed(task);
          else this.#held.renewed({ ...lease, token: task.token });
        } else if (failure.code === "TM_LEASE_LOST") {
          this.#options.lose(task, new LeaseLostError(task.token));
        } else this.#held.notRenewed(task);
      },
    });
  }

  #act(task: RemoteTask, act: WireAct): Promise<ActAck> {
    if (!task.isHeld) return Promise.reject(new LeaseLostError(task.token));
    if (task.actsOpen >= OPEN_MAX) {
      const most = `${OPEN_MAX} acts on task ${task.id} wait for their answer; await them`;
      return Promise.reject(new LimitError(most));
    }
    task.actsOpen += 1;
    return new Promise((resolve, reject) => {
      this.#options.add({
        task,
        act,
        onAck: (ack) => {
          task.actsOpen -= 1;
          const { failure } = ack;
          if (failure === undefined) resolve(ack);
          else if (failure.code === "TM_LEASE_LOST") {
            const error = new LeaseLostError(task.token);
            this.#options.lose(task, error);
            reject(error);
          } else reject(errorOf(failure));
        },
      });
    });
  }
}
