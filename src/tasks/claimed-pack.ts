import type { CommonFacts, LaneOwner, Rare } from "./claimed-row.ts";
import { PACK_LANES } from "./sql/claim.ts";
import { type PackText, type PackToken, readPack } from "./sql/packs.ts";
import { keyLane } from "./task.ts";

/** No pack holds more tasks. */
export const PACK_TASKS_MAX = 100;

export const packLane = (lane: number): number => lane + PACK_LANES;
export const rowLane = (lane: number): number => lane - PACK_LANES;
export const isPackLane = (lane: number): boolean => lane >= PACK_LANES;

interface PackMember {
  readonly queue: string;
  /** JSON, or "" for none. */
  readonly result: string;
}

/**
 * Tasks that this worker claimed as one row: closed (the row is in the database as it was claimed)
 * → sending (all have completed, and that is on its way) → completed; or closed → opening → open:
 * each is a row of its own. Somebody else may open it at any time, whatever is known here: then
 * what is sent of it finds nothing, and it counts as open.
 */
export class ClaimedPack<Member extends PackMember = PackMember> implements PackToken, CommonFacts {
  readonly id: string;
  readonly claimId: string;
  readonly text: PackText;
  readonly lane: number;
  readonly tasks: Member[] = [];
  state: "closed" | "sending" | "completed" | "opening" | "open" = "closed";
  /** Under way while it is opening. */
  opening: Promise<void> | undefined;
  /** Those whose end waits for that of the others. */
  ended: Member[] = [];
  /** When the first of them ended. */
  endedAtMs = 0;
  /** Something else than its completion became of one of its tasks. */
  mustOpen = false;
  /** Its completion was sent before, and perhaps accepted. */
  isDoubtful = false;
  /** When somebody had its row locked: when to ask again. */
  restsUntilMs = 0;

  constructor(text: string, claimId: string) {
    this.text = readPack(text);
    this.id = this.text.id;
    this.claimId = claimId;
    this.lane = packLane(this.text.lane);
  }

  get attempt(): number {
    return 1;
  }
  get generation(): number {
    return 1;
  }
  get maxAttempts(): number {
    return this.text.maxAttempts;
  }
  get runAtMs(): number {
    return this.text.createdAtMs;
  }
  get rare(): Rare | undefined {
    const { kind, options, createdAtMs } = this.text;
    if (kind === undefined && options === undefined) return undefined;
    return {
      createdAtMs,
      isOnProbation: false,
      kind,
      contentType: undefined,
      bytes: undefined,
      options,
    };
  }

  get queue(): string {
    return this.tasks[0]?.queue ?? "";
  }

  /** JSON, or "" for none; nothing when none of its tasks has one. */
  get results(): readonly string[] {
    const hasResults = this.tasks.some((task) => task.result !== "");
    return hasResults ? this.tasks.map((task) => task.result) : [];
  }

  rows(): PackedRow[] {
    const { ids, payloads } = this.text;
    return ids.map((id, place) => new PackedRow(this, id, payloads[place] ?? "", place));
  }
}

/** One task of a pack: what a row would say, but for what all of them have in common. */
export class PackedRow {
  readonly id: string;
  readonly payload: string;
  readonly owner: LaneOwner | undefined;
  readonly lane: number;
  readonly partitionKey: string | undefined;

  constructor(pack: ClaimedPack, id: string, payload: string, place: number) {
    this.id = id;
    this.payload = payload;
    const { keyed, lane } = pack.text;
    this.owner = keyed;
    this.partitionKey = keyed?.keys[place];
    this.lane = keyed === undefined ? pack.lane : keyLane(-lane - 1, Number(keyed.buckets[place]));
  }

  get claimOrder(): number {
    return Number(this.id);
  }
}
