const SEED = 0x9747b28c;
const MIX = 0x5bd1e995;

/** The hash by which producers of Kafka's own choose partitions: MurmurHash2 of 32 bits. */
export function murmur2(bytes: Uint8Array): number {
  const whole = bytes.length & ~3;
  let hash = SEED ^ bytes.length;
  for (let at = 0; at < whole; at += 4) {
    let word = byteAt(bytes, at) | (byteAt(bytes, at + 1) << 8);
    word |= (byteAt(bytes, at + 2) << 16) | (byteAt(bytes, at + 3) << 24);
    word = Math.imul(word, MIX);
    word = Math.imul(word ^ (word >>> 24), MIX);
    hash = Math.imul(hash, MIX) ^ word;
  }
  const left = bytes.length - whole;
  if (left > 2) hash ^= byteAt(bytes, whole + 2) << 16;
  if (left > 1) hash ^= byteAt(bytes, whole + 1) << 8;
  if (left > 0) hash = Math.imul(hash ^ byteAt(bytes, whole), MIX);
  hash = Math.imul(hash ^ (hash >>> 13), MIX);
  return hash ^ (hash >>> 15);
}

const byteAt = (bytes: Uint8Array, place: number): number => bytes[place] ?? 0;

/**
 * Where messages of a key go. The clients do not agree about it, and would choose again for what
 * they send again; so it is chosen here, as producers in Java do, and once for each message.
 */
export function partitionOf(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}
