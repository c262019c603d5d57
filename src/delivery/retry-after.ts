/** A receiver may ask for a longer pause than ours, but not for any. */
const RETRY_AFTER_SECONDS_MAX = 12 * 3_600;

/** What the header asks for: seconds, or a date; 0 for neither. */
export function retryAfterSeconds(text: string | undefined, now: Date): number {
  if (text === undefined) return 0;
  const seconds = /^\d{1,9}$/.test(text)
    ? Number(text)
    : (Date.parse(text) - now.getTime()) / 1_000;
  if (!(seconds > 0)) return 0;
  return Math.min(seconds, RETRY_AFTER_SECONDS_MAX);
}
