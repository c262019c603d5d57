/** What the engine sends as an array in a text: `{1,2}`. */
export const numbersOf = (text: unknown): number[] => wordsOf(text).map(Number);

export function wordsOf(text: unknown): string[] {
  const inside = String(text).slice(1, -1);
  return inside === "" ? [] : inside.split(",");
}

export const secondsToMs = (seconds: unknown): number => Number(seconds) * 1_000;
