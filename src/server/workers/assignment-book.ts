import { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { LeaseToken, Task } from "../../tasks/task.ts";
import { Assignment } from "./assignment.ts";

/** The tasks in the hands of remote workers. */
export class AssignmentBook {
  /** By the id of the task: the last claim of it here. */
  readonly #byId = new Map<string, Assignment>();

  add(assignment: Assignment): void {
    const { task } = assignment;
    task.kept = assignment;
    this.#byId.set(task.id, assignment);
  }

  get tasks(): Iterable<Task> {
    return this.#tasks();
  }

  *#tasks(): Generator<Task> {
    for (const { task } of this.#byId.values()) yield task;
  }

  of(task: Task): Assignment | undefined {
    const kept = task instanceof ClaimedTask ? task.kept : undefined;
    return kept instanceof Assignment ? kept : undefined;
  }

  /** The last claim of the task here, whoever has it. */
  get(taskId: string): Assignment | undefined {
    return this.#byId.get(taskId);
  }

  /** The claim that a worker of the tenant may act on by this token. */
  find({ taskId, generation, claimId }: LeaseToken, tenant: string): Assignment | undefined {
    const one = this.#byId.get(taskId);
    if (one === undefined || one.task.tenant !== tenant) return undefined;
    const isSame = one.task.generation === generation && one.task.claim.id === claimId;
    return isSame ? one : undefined;
  }

  /** Nobody acts on it here any more. */
  forget(assignment: Assignment): void {
    const { task } = assignment;
    task.kept = undefined;
    assignment.holder = undefined;
    if (this.#byId.get(task.id) === assignment) this.#byId.delete(task.id);
  }
}
