import type { BucketOwners } from "../../../../src/cluster/ring.ts";
import { shortId } from "../../format.ts";

export interface RingWordsProps {
  readonly keyText: string;
  readonly bucket: number | undefined;
  readonly owners: BucketOwners;
  /** What the ring alone would give to the emptiest and the fullest. */
  readonly spread: readonly [number, number];
  readonly virtualNodes: number;
}

/** What the circle shows, for who cannot see it or wants the numbers. */
export function RingWords(props: RingWordsProps) {
  const { keyText, bucket, owners, virtualNodes } = props;
  const counts = new Map<string, number>();
  for (const owner of owners.values()) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  const held = [...counts.values()];
  const [least, most] = props.spread;
  return (
    <div aria-live="polite" className="mt-3 flex flex-col gap-1 text-center">
      {bucket === undefined ? null : (
        <KeyAnswer keyText={keyText} bucket={bucket} owner={owners.get(bucket)} />
      )}
      <p className="text-xs text-muted">
        Outside the buckets by owner, inside the ring with {virtualNodes} virtual nodes of each
        worker. The ring alone would give each {range(least, most)} buckets; with the bound on load
        they have {held.length === 0 ? "none" : range(Math.min(...held), Math.max(...held))}.
      </p>
    </div>
  );
}

const range = (least: number, most: number): string =>
  least === most ? String(least) : `${least} to ${most}`;

interface KeyAnswerProps {
  readonly keyText: string;
  readonly bucket: number;
  readonly owner: string | undefined;
}

function KeyAnswer({ keyText, bucket, owner }: KeyAnswerProps) {
  return (
    <p>
      Key “{keyText}” is in bucket {bucket}, which{" "}
      {owner === undefined ? "nobody owns" : <code title={owner}>{shortId(owner)}</code>}
      {owner === undefined ? "" : " owns"}.
    </p>
  );
}
