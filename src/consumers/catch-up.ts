/**
 * How long it takes whoever is so many positions behind to be at the head, which moves on
 * meanwhile. Undefined: at this pace it never is.
 */
export function catchUpSeconds(
  lag: number,
  perSecond: number,
  appendedPerSecond: number,
): number | undefined {
  if (lag <= 0) return 0;
  const closing = perSecond - appendedPerSecond;
  return closing > 0 ? lag / closing : undefined;
}
