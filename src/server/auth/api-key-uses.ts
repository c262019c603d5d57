import { exponentialMs } from "../../base/backoff.ts";
import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Queryable } from "../../db/database.ts";
import { recordUses } from "./sql/api-keys.ts";

/** A key that is used all the time is written this often. */
const EVERY_MS = 60_000;
const TURN_MS = 5_000;
const FAILED_MS_MAX = 60_000;

export interface ApiKeyUsesOptions {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Writes which keys are in use: many in one statement, each at most once a minute. */
export class ApiKeyUses implements Service {
  readonly name = "api key uses";
  readonly #db: Queryable;
  readonly #options: ApiKeyUsesOptions;
  readonly #bell = new Bell();
  #unwritten = new Set<string>();
  /** When each was last noted. Only keys that exist get here. */
  readonly #notedAt = new Map<string, number>();

  constructor(db: Queryable, options: ApiKeyUsesOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Of a key that was accepted. */
  note(id: string): void {
    const now = this.#options.clock.now();
    const before = this.#notedAt.get(id);
    if (before !== undefined && now - before < EVERY_MS) return;
    this.#notedAt.set(id, now);
    this.#unwritten.add(id);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onFailure = (error: unknown, failures: number): number => {
      logger.warn({ error: messageOf(error), failures }, "could not write the use of API keys");
      return exponentialMs(failures, 1_000, FAILED_MS_MAX);
    };
    await runLoop(() => this.#turn(), { clock, bell: this.#bell, onFailure }, signal);
    await this.#write().catch((error: unknown) => {
      logger.warn({ error: messageOf(error) }, "could not write the use of API keys");
    });
  }

  async #turn(): Promise<TurnResult> {
    await this.#write();
    const now = this.#options.clock.now();
    for (const [id, at] of this.#notedAt) if (now - at >= EVERY_MS) this.#notedAt.delete(id);
    return { restMs: TURN_MS };
  }

  async #write(): Promise<void> {
    const ids = this.#unwritten;
    if (ids.size === 0) return;
    this.#unwritten = new Set();
    try {
      await recordUses(this.#db, [...ids], EVERY_MS / 1000);
    } catch (error) {
      for (const id of ids) this.#unwritten.add(id);
      throw error;
    }
  }
}
