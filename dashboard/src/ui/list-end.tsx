import { formatCount } from "../format.ts";

export interface ListEndProps {
  /** How many are shown at most. */
  readonly shown: number;
  readonly all: number;
  /** How the others are found. */
  readonly how: string;
}

/** A list that does not have all of them says so. */
export function ListEnd({ shown, all, how }: ListEndProps) {
  if (all <= shown) return null;
  return (
    <p className="px-4 py-2 text-xs text-muted">
      The first {formatCount(shown)} of {formatCount(all)}; {how}.
    </p>
  );
}
