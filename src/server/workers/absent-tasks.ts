import type { ClaimTokens } from "../../tasks/claim-tokens.ts";
import { NOT_FOUND, NOT_IN_PROGRESS, NOT_OWNER } from "./codeq-messages.ts";

type OnAnswer = (answer: string, place: number) => void;

interface Asked {
  readonly taskId: string;
  readonly onAnswer: OnAnswer;
  readonly place: number;
}

/** In one statement. */
const ASKED_MAX = 1_000;

/**
 * What a client is told of a task that its stream does not have: that there is none, that it has
 * ended, or that it is somebody else's to speak for.
 */
export class AbsentTasks {
  readonly #tokens: () => Pick<ClaimTokens, "whereabouts">;
  #asked: Asked[] = [];
  #isAsking = false;

  constructor(tokens: () => Pick<ClaimTokens, "whereabouts">) {
    this.#tokens = tokens;
  }

  /** @param place that `onAnswer` is told: one function may hear of many */
  ask(tenant: string, taskId: string, onAnswer: OnAnswer, place = 0): void {
    if (!/^[1-9]\d{0,17}$/.test(taskId)) {
      onAnswer(NOT_FOUND, place);
      return;
    }
    this.#asked.push({ taskId, onAnswer, place });
    if (this.#isAsking) return;
    this.#isAsking = true;
    setImmediate(() => void this.#askAll(tenant));
  }

  /** While some are asked for, others gather. */
  async #askAll(tenant: string): Promise<void> {
    while (this.#asked.length > 0) {
      const asked = this.#asked.splice(0, ASKED_MAX);
      const answers = await this.#find(tenant, asked);
      for (const { taskId, onAnswer, place } of asked) {
        onAnswer(answers === undefined ? NOT_OWNER : (answers.get(taskId) ?? NOT_FOUND), place);
      }
    }
    this.#isAsking = false;
  }

  /** Undefined when nobody knows now. That it is not the client's is true in any case. */
  async #find(tenant: string, asked: readonly Asked[]): Promise<Map<string, string> | undefined> {
    try {
      const ids = asked.map(({ taskId }) => taskId);
      const found = await this.#tokens().whereabouts(ids, tenant);
      return new Map(
        [...found].map(([id, where]) => [id, where === "live" ? NOT_OWNER : NOT_IN_PROGRESS]),
      );
    } catch {
      return undefined;
    }
  }
}
