/** What a target does to a job, and what must become of it. */
interface Kind {
  readonly does: string;
  /** Hosts are left alone each by itself; this one is `<host>.hooks.test`. */
  readonly host: string;
  /** Of a hundred jobs. */
  readonly share: number;
  readonly maxAttempts: number;
  readonly end: "completed" | "failed" | "dead";
}

/** Whatever is killed, there are attempts left. */
const MANY = 50;

/**
 * Hosts that are silent, or unavailable, also have jobs that they answer: else they would be left
 * alone for longer and longer, as hosts that are dead, and a run would take as long.
 */
export const KINDS: readonly Kind[] = [
  { does: "fine", host: "one", share: 34, maxAttempts: MANY, end: "completed" },
  { does: "fine-slow-host", host: "slow", share: 25, maxAttempts: MANY, end: "completed" },
  { does: "fine-poor-host", host: "poor", share: 10, maxAttempts: MANY, end: "completed" },
  { does: "flaky", host: "one", share: 8, maxAttempts: MANY, end: "completed" },
  { does: "unavailable", host: "poor", share: 3, maxAttempts: MANY, end: "completed" },
  { does: "refused", host: "one", share: 5, maxAttempts: MANY, end: "failed" },
  { does: "broken", host: "one", share: 4, maxAttempts: 3, end: "dead" },
  { does: "busy", host: "busy", share: 5, maxAttempts: MANY, end: "completed" },
  { does: "slow", host: "slow", share: 3, maxAttempts: MANY, end: "completed" },
  { does: "silent", host: "slow", share: 1, maxAttempts: 2, end: "dead" },
  { does: "hang-up", host: "one", share: 2, maxAttempts: MANY, end: "completed" },
];

export const PRIORITIES = ["high", "normal", "low"] as const;

const DECK: readonly Kind[] = KINDS.flatMap((kind) => Array<Kind>(kind.share).fill(kind));
/** No divisor of a hundred, so that neighbours differ and every topic has all kinds. */
const STEP = 37;

export function kindOf(n: number): Kind {
  const kind = DECK[(n * STEP) % DECK.length];
  if (kind === undefined) throw new Error("the shares of all kinds must be a hundred");
  return kind;
}

/** The message that makes it a task. */
export function messageOf(n: number, port: number): object {
  const { does, host, maxAttempts } = kindOf(n);
  return { payload: { n }, targetUrl: `http://${host}.hooks.test:${port}/${does}`, maxAttempts };
}
