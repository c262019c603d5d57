/** What the tables say when everything is quiet. Ids and positions are decimal strings. */
export interface Truth {
  /** By the database's clock, when the tables were read. */
  readonly atMs: number;
  readonly tasks: readonly TaskFact[];
  readonly effects: readonly EffectFact[];
  readonly events: readonly EventFact[];
  readonly handled: readonly HandledFact[];
  readonly terms: readonly TermFact[];
  readonly firings: readonly FiringFact[];
  readonly losses: readonly LossFact[];
  readonly returns: readonly ReturnFact[];
  readonly gaps: readonly GapFact[];
  readonly checkpoints: readonly CheckpointFact[];
  readonly moves: readonly MoveFact[];
  readonly claims: readonly ClaimFact[];
  readonly cuts: readonly CutFact[];
  readonly packClaims: readonly PackClaimFact[];
  readonly schedules: readonly ScheduleFact[];
  readonly writes: readonly LeaderWriteFact[];
  readonly leftovers: readonly LeftoverFact[];
}

/** One row of live tasks, of history or of dead letters; a task has exactly one of all. */
export interface TaskFact {
  readonly id: string;
  /** From its payload. */
  readonly name: string;
  readonly queue: string;
  readonly key: string | null;
  readonly state:
    | "scheduled"
    | "pending"
    | "running"
    | "completed"
    | "failed"
    | "cancelled"
    | "dead";
  readonly generation: number;
  readonly claimId: string | null;
  /** Who had it last. Defaults to nobody that is known. */
  readonly worker?: string | null;
  /** When its end was accepted, by the database's clock; null while it lives. */
  readonly finishedAtMs: number | null;
  /** Of a task that runs. */
  readonly leaseUntilMs: number | null;
}

/** Written by a handler in the transaction that completed its task. */
export interface EffectFact {
  readonly task: string;
  readonly name: string;
  readonly key: string | null;
  readonly generation: number;
  readonly claimId: string;
  /** By the database's clock, before the handler wrote. */
  readonly startedAtMs: number;
  /** By the database's clock, when it wrote. */
  readonly atMs: number;
}

export interface EventFact {
  readonly position: string;
  readonly name: string;
  /** Where it says who must handle it. */
  readonly type?: string;
}

/** Written by a consumer in the transaction of its batch, in the order of `seq`. */
export interface HandledFact {
  readonly seq: string;
  readonly consumer: string;
  /** Of the consumer; batches of one partition come one after another. */
  readonly partition: number;
  /** Within which order is promised: a partition, or a stream where streams may be set aside. */
  readonly line: string;
  readonly position: string;
  readonly xid: string;
}

/** A trigger saw the row of the leader's term change. */
export interface TermFact {
  readonly seq: string;
  readonly term: string;
  readonly leader: string | null;
  /** By the database's clock. */
  readonly atMs: number;
}

/** A task that a schedule enqueued. */
export interface FiringFact {
  readonly schedule: string;
  /** For which moment. */
  readonly tickMs: number;
  /** When it did, by the database's clock. */
  readonly firedAtMs: number;
  readonly task: string;
}

/** As it was when nothing ran any more. */
export interface ScheduleFact {
  readonly schedule: string;
  /** By the database's clock. */
  readonly createdAtMs: number;
  readonly pausedAtMs: number | null;
}

/** A trigger saw that a consumer or buckets were given to somebody, or that buckets were taken. */
export interface LeaderWriteFact {
  /** In the order of writes. */
  readonly seq: string;
  readonly what: string;
  /** Of the row of the term, in the transaction of the write. */
  readonly term: string;
  readonly leader: string | null;
  /** Whether that transaction held the row. */
  readonly isHeld: boolean;
  /** Of buckets that were given. */
  readonly keySpace: number | null;
  readonly epoch: string | null;
}

/** What should not be there when all is quiet and had time: who or what it is, in words. */
export interface LeftoverFact {
  readonly kind:
    | "bucket"
    | "consumer"
    | "hold"
    | "grant"
    | "claim"
    | "prepared transaction"
    | "session";
  readonly what: string;
}

/** A trigger saw a row being claimed. */
export interface ClaimFact {
  readonly task: string;
  readonly generation: number;
  readonly claimId: string;
  /** By the database's clock. */
  readonly atMs: number;
}

/** A trigger saw tasks being claimed that wait in one row: all of them, for the first time. */
export interface PackClaimFact {
  /** Of its tasks, with commas between them. */
  readonly ids: string;
  readonly claimId: string;
  readonly atMs: number;
}

/** A trigger saw a claim end before its lease did, and its task not yet. */
export interface CutFact {
  readonly task: string;
  readonly claimId: string;
  /** Whose the task is now; null: nobody's. */
  readonly nextClaimId: string | null;
  /** Of the transaction that ended it, as that of a loss. */
  readonly atMs: number;
}

/** A task was taken from a worker that stopped renewing. */
export interface LossFact {
  readonly task: string;
  readonly worker: string;
  /** By the database's clock. */
  readonly atMs: number;
}

/** Its own worker gave a task back, for another attempt or to the dead. */
export interface ReturnFact {
  readonly task: string;
  readonly atMs: number;
}

/** A consumer crossed positions without an event, because nothing can appear there. */
export interface GapFact {
  /** The first of them. */
  readonly from: string;
  /** How far the batch went: events that it handled lie in between. */
  readonly to: string;
  /** How many positions from `from` to `to` had no event. */
  readonly missing: string;
}

export interface CheckpointFact {
  readonly consumer: string;
  readonly partition: number;
  readonly position: string;
}

/** A trigger saw a checkpoint change, in the transaction of a batch. */
export interface MoveFact {
  /** Of one partition, in the order of their commits: each holds the row until then. */
  readonly seq: string;
  readonly consumer: string;
  readonly partition: number;
  readonly from: string;
  readonly to: string;
  readonly xid: string;
}
