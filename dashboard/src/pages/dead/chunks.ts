/** In pieces of at most so many, in order. */
export function chunksOf<T>(all: readonly T[], most: number): T[][] {
  const pieces: T[][] = [];
  for (let start = 0; start < all.length; start += most) {
    pieces.push(all.slice(start, start + most));
  }
  return pieces;
}
