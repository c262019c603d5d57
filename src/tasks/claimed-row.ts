import pg from "pg";
import { FIELD } from "./sql/claim.ts";

/** What a lane says of its tasks. */
export interface LaneOwner {
  readonly queue: string;
  readonly tenant: string;
  /** Below 0 for probation, whose tasks have priorities of their own. */
  readonly priority: number;
}

/** What few tasks have. */
export interface Rare {
  readonly createdAtMs: number;
  readonly isOnProbation: boolean;
  readonly kind: string | undefined;
  readonly contentType: string | undefined;
  readonly bytes: Buffer | undefined;
  readonly options: string | undefined;
}

/** What tasks of one pack have in common. */
export interface CommonFacts {
  readonly attempt: number;
  readonly generation: number;
  readonly maxAttempts: number;
  readonly runAtMs: number;
  readonly rare: Rare | undefined;
}

/** What a claim tells of a task. */
export interface TaskFacts extends CommonFacts {
  readonly id: string;
  readonly lane: number;
  readonly claimOrder: number;
  /** JSON; "" when the payload is bytes. */
  readonly payload: string;
  /** What it says itself when its lane does not. */
  readonly owner: LaneOwner | undefined;
  readonly partitionKey: string | undefined;
}

/** Of a row's own owner there are four: how many fields came tells which. */
const RARE_FIELDS = 6;
const NONE: readonly string[] = [];
const toBytes = pg.types.getTypeParser(pg.types.builtins.BYTEA);

/**
 * One claimed row, as claim.ts packs it. Its first fields are read at once, the rest when it is
 * asked for: most handlers read the payload and nothing else.
 */
export class ClaimedRow implements TaskFacts {
  readonly id: string;
  readonly lane: number;
  readonly claimOrder: number;
  readonly attempt: number;
  readonly generation: number;
  readonly #text: string;
  readonly #maxAttemptsAt: number;
  readonly #runAtAt: number;
  readonly #payloadAt: number;
  /** The fields that most rows do not have. */
  readonly #more: readonly string[];

  constructor(text: string) {
    this.#text = text;
    let at = 0;
    const next = (): string => {
      const end = text.indexOf(FIELD, at);
      const field = text.slice(at, end);
      at = end + 1;
      return field;
    };
    this.id = next();
    this.lane = Number(next());
    this.claimOrder = Number(next() || this.id);
    this.attempt = Number(next());
    this.generation = Number(next()) || this.attempt;
    this.#maxAttemptsAt = at;
    this.#runAtAt = text.indexOf(FIELD, at) + 1;
    const moreAt = text.indexOf(FIELD, this.#runAtAt) + 1;
    const isPlain = !text.includes(FIELD, moreAt);
    this.#payloadAt = isPlain ? moreAt : text.lastIndexOf(FIELD) + 1;
    this.#more = isPlain ? NONE : text.slice(moreAt, this.#payloadAt - 1).split(FIELD);
  }

  get payload(): string {
    return this.#text.slice(this.#payloadAt);
  }
  get maxAttempts(): number {
    return Number(this.#text.slice(this.#maxAttemptsAt, this.#runAtAt - 1));
  }
  get runAtMs(): number {
    return Number.parseInt(this.#text.slice(this.#runAtAt), 10);
  }
  get owner(): LaneOwner | undefined {
    return this.#hasOwner ? readOwner(this.#more) : undefined;
  }
  get partitionKey(): string | undefined {
    return (this.#hasOwner && this.#more[3]) || undefined;
  }
  get #hasOwner(): boolean {
    const { length } = this.#more;
    return length !== RARE_FIELDS && length !== 0;
  }
  get rare(): Rare | undefined {
    if (this.#more.length < RARE_FIELDS) return undefined;
    return readRare(this.#more.slice(-RARE_FIELDS));
  }
}

function readOwner([queue = "", tenant = "", priority]: readonly string[]): LaneOwner {
  return { queue, tenant, priority: Number(priority) };
}

function readRare(fields: readonly string[]): Rare {
  const [createdAtMs, isOnProbation, kind, contentType, bytes, options] = fields;
  return {
    createdAtMs: Number(createdAtMs),
    isOnProbation: isOnProbation === "t",
    kind: kind || undefined,
    contentType: contentType || undefined,
    bytes: bytes ? (toBytes(bytes) as Buffer) : undefined,
    options: options || undefined,
  };
}
