import type { LeaseToken, Task } from "../../tasks/task.ts";
import type { Assignment } from "./assignment.ts";

/** Whoever runs tasks somewhere else, as far as one task is concerned. */
export interface Holder {
  /** The task is no longer the worker's: it was lost or cancelled, or took too long. */
  onLost(assignment: Assignment, why: Error): void;
  /** The task is no longer the worker's: its end was answered, or another stream has it now. */
  onGone(assignment: Assignment): void;
  /** Its lease lasts longer now. */
  onRenewed(assignment: Assignment): void;
}

/** The tasks in the hands of remote workers, and whose hands. */
export class AssignmentBook {
  readonly #byTask = new Map<Task, Assignment>();
  /** By the id of the task: the last claim of it here. */
  readonly #byId = new Map<string, Assignment>();
  readonly #holders = new Map<Assignment, Holder>();

  add(assignment: Assignment): void {
    const { task } = assignment;
    this.#byTask.set(task, assignment);
    this.#byId.set(task.id, assignment);
  }

  get tasks(): Iterable<Task> {
    return this.#byTask.keys();
  }

  of(task: Task): Assignment | undefined {
    return this.#byTask.get(task);
  }

  /** The claim that a worker of the tenant may act on by this token. */
  find({ taskId, generation, claimId }: LeaseToken, tenant: string): Assignment | undefined {
    const one = this.#byId.get(taskId);
    if (one === undefined || one.task.tenant !== tenant) return undefined;
    const isSame = one.task.generation === generation && one.task.claim.id === claimId;
    return isSame ? one : undefined;
  }

  /** Undefined while nobody has it. */
  holderOf(assignment: Assignment): Holder | undefined {
    return this.#holders.get(assignment);
  }

  give(assignment: Assignment, holder: Holder | undefined): void {
    if (holder === undefined) this.#holders.delete(assignment);
    else this.#holders.set(assignment, holder);
  }

  forget(assignment: Assignment): void {
    const { task } = assignment;
    this.#byTask.delete(task);
    if (this.#byId.get(task.id) === assignment) this.#byId.delete(task.id);
    this.#holders.delete(assignment);
  }
}
