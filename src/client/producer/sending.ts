/** What is known when something might be sent. */
export interface SendFacts {
  /** Tasks that were not sent. */
  readonly queued: number;
  /** Creates that were sent and not answered. */
  readonly unanswered: number;
  /** Of those, as many as the server takes. */
  readonly unansweredMax: number;
  /** Tasks in one create. */
  readonly batchTasks: number;
  /** The connection takes no more for now. */
  readonly isFull: boolean;
}

/** While so many creates are under way, the next is gathered until it is full. */
export const PIPELINE = 4;

/**
 * Whether to send a create now. At once while few are under way, because then waiting helps nobody;
 * after that only full ones, because the server commits together what comes together.
 */
export function shouldSend(facts: SendFacts): boolean {
  const { queued, unanswered, unansweredMax, batchTasks, isFull } = facts;
  if (queued === 0 || isFull || unanswered >= unansweredMax) return false;
  return unanswered < PIPELINE || queued >= batchTasks;
}
