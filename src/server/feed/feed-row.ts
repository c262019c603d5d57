import { readAct, type ToldAct } from "./act.ts";
import type { FeedKind } from "./event.ts";
import { writePlace } from "./place.ts";

/** What one statement changed, as it is stored. */
export interface StoredRow {
  readonly position: string;
  readonly at: Date;
  readonly kind: FeedKind;
  readonly tenant: string | null;
  readonly queue: string | null;
  readonly state: string | null;
  readonly attempt: number | null;
  readonly worker_id: string | null;
  readonly reason: string | null;
  readonly first_id: string | null;
  readonly last_id: string | null;
  /** With a comma between; null for all from the first to the last. */
  readonly ids: string | null;
  /** JSON. */
  readonly data: string | null;
}

/** Of a message, beside what all of a row have in common. */
const MESSAGE_CHARS = 80;

/** A row of the feed, and the messages that tell of it, which are the same for everybody. */
export class FeedRow {
  readonly position: bigint;
  readonly kind: FeedKind;
  /** Of a change of the cluster there is none. */
  readonly tenant: string | undefined;
  readonly queue: string;
  readonly state: string;
  /** How many changes it tells of. */
  readonly count: number;
  readonly #era: string;
  readonly #stored: StoredRow;
  readonly #ids: readonly string[] | undefined;
  readonly #firstId: bigint;
  readonly #tail: string;
  #all: string | undefined;
  #act: ToldAct | undefined;

  constructor(era: string, stored: StoredRow) {
    this.#era = era;
    this.#stored = stored;
    this.position = BigInt(stored.position);
    this.kind = stored.kind;
    this.tenant = stored.tenant ?? undefined;
    this.queue = stored.queue ?? "";
    this.state = stored.state ?? "";
    this.#ids = stored.ids?.split(",");
    this.#firstId = BigInt(stored.first_id ?? 0);
    const lastId = BigInt(stored.last_id ?? 0);
    this.count =
      this.kind === "task" ? (this.#ids?.length ?? Number(lastId - this.#firstId) + 1) : 1;
    this.#tail = this.kind === "task" ? tailOf(stored) : "";
  }

  get at(): Date {
    return this.#stored.at;
  }

  /** Whether its tasks were claimed before, and wait to be claimed again. */
  get isRetry(): boolean {
    return /^(pending|scheduled)$/.test(this.state) && (this.#stored.attempt ?? 0) > 0;
  }

  /** Of an act. */
  get act(): ToldAct | undefined {
    if (this.kind !== "act") return undefined;
    this.#act ??= readAct(this.#stored.data ?? "{}");
    return this.#act;
  }

  /** Of a change of tasks: which they are. */
  *taskIds(): Generator<string> {
    if (this.kind !== "task") return;
    for (let index = 0; index < this.count; index += 1) yield this.#taskIdAt(index);
  }

  /** The data of all its changes but the first so many. */
  dataAfter(skipped: number): string[] {
    return Array.from({ length: this.count - skipped }, (_, at) => this.#dataAt(skipped + at));
  }

  /** About how many characters its messages have. */
  get chars(): number {
    const { data } = this.#stored;
    return this.count * (MESSAGE_CHARS + this.#tail.length + (data?.length ?? 0));
  }

  /** The messages of all its changes but the first so many. */
  textAfter(skipped: number): string {
    if (skipped === 0 && this.#all !== undefined) return this.#all;
    let text = "";
    for (let index = skipped; index < this.count; index += 1) text += this.#textAt(index);
    if (skipped === 0) this.#all = text;
    return text;
  }

  /** The message of one task, unless it is among the first so many. "" when there is none. */
  textOf(taskId: string, skipped: number): string {
    const index = this.#indexOf(taskId);
    return index < skipped ? "" : this.#textAt(index);
  }

  /** Of an act, for those who may not know who did what and why: that something was done. */
  briefAfter(skipped: number): string {
    if (skipped > 0) return "";
    return this.#write(0, JSON.stringify({ act: this.act?.act, at: this.at }));
  }

  #indexOf(taskId: string): number {
    if (this.kind !== "task") return -1;
    if (this.#ids !== undefined) return this.#ids.indexOf(taskId);
    const index = Number(BigInt(taskId) - this.#firstId);
    return index < this.count ? index : -1;
  }

  #textAt(index: number): string {
    return this.#write(index, this.#dataAt(index));
  }

  #write(index: number, data: string): string {
    const { position, kind } = this;
    const id = writePlace({ era: this.#era, position, index: index + 1 });
    return `id: ${id}\nevent: ${kind}\ndata: ${data}\n\n`;
  }

  #dataAt(index: number): string {
    if (this.kind !== "task") return clusterData(this.#stored);
    return `{"id":"${this.#taskIdAt(index)}"${this.#tail}`;
  }

  #taskIdAt(index: number): string {
    return this.#ids?.[index] ?? String(this.#firstId + BigInt(index));
  }
}

/** What all tasks of the row have in common, behind the id. */
function tailOf(row: StoredRow): string {
  const { queue, tenant, state, attempt, at, worker_id: worker, reason } = row;
  const common = {
    queue,
    tenant,
    state,
    attempt,
    at,
    ...(worker === null ? {} : { worker }),
    ...(reason === null ? {} : { reason }),
  };
  return `,${JSON.stringify(common).slice(1)}`;
}

function clusterData({ data, at }: StoredRow): string {
  return `${(data ?? "{}").slice(0, -1)}, "at": ${JSON.stringify(at)}}`;
}
