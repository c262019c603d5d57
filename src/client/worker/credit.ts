/** What is known of the queues that share credit. */
export interface CreditFacts {
  /** Tasks that may be held and have not ended. */
  readonly capacity: number;
  /** Those that are. */
  readonly held: number;
  /** Credit that was given and not used. */
  readonly given: number;
  /** Smaller gifts wait for more to come together. */
  readonly step: number;
  /** Acts that wait for their acknowledgement, of all queues. */
  readonly unanswered: number;
  readonly unansweredMax: number;
}

/**
 * How much credit to give now. Places are free when handlers return, so that the next tasks are on
 * their way while the ends of the last are written; but a server that does not answer gets no more.
 */
export function creditToGive(facts: CreditFacts): number {
  const { capacity, held, given, step, unanswered, unansweredMax } = facts;
  const free = capacity - held - given;
  if (free <= 0 || unanswered >= unansweredMax) return 0;
  return free >= Math.min(step, capacity) || held + given === 0 ? free : 0;
}
