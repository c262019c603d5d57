import { type Mutant, model, test } from "../mutant.ts";

/* Packs of keyed tasks, which are one line with the rows of their buckets. */

const KEYS = "src/tasks/sql/keys.ts";
const KEY_PACKS = "src/tasks/sql/key-packs.ts";
const races = (only: string) => test("test/model/keyed-pack-interleavings.test.ts", { only });

export const PACK_MUTANTS: readonly Mutant[] = [
  {
    name: "row-before-pack",
    breaks: "rows of a key are claimed though a pack with an earlier task of it waits",
    edits: [
      {
        file: KEYS,
        find: '"ready.claim_order < (SELECT id FROM first_pack)"',
        replace: '"TRUE"',
      },
    ],
    catchers: [model("task-queue.test.ts"), races("a row is not claimed before a pack")],
  },
  {
    name: "pack-before-rows",
    breaks: "a pack is claimed though earlier rows of its buckets may run",
    edits: [
      {
        file: KEY_PACKS,
        find: "AND before.claim_order < waiting.id",
        replace: "AND before.claim_order < 0",
      },
    ],
    catchers: [races("a pack waits for rows before it")],
  },
  {
    name: "pack-past-opened-one",
    breaks: "a pack is claimed though one before it was opened while the claim waited for it",
    edits: [
      {
        file: KEY_PACKS,
        find: "WHERE seen.id NOT IN (SELECT id FROM waiting)",
        replace: "WHERE FALSE",
      },
    ],
    catchers: [races("opened meanwhile")],
  },
  {
    name: "pack-with-held-key",
    breaks: "a pack is claimed though one of its keys is held",
    edits: [
      {
        file: KEY_PACKS,
        find: "AND hold.partition_key = one.key) THEN 'held'",
        replace: "AND hold.partition_key = one.key AND FALSE) THEN 'held'",
      },
    ],
    catchers: [model("task-queue.test.ts"), races("a held key")],
  },
  {
    name: "pack-epoch-ignored",
    breaks: "a worker claims a pack of buckets that it does not own any more",
    edits: [
      {
        file: KEY_PACKS,
        find: "AND epoch = $7::bigint",
        replace: "AND $7::bigint IS NOT NULL",
      },
    ],
    catchers: [races("the owner of the epoch")],
  },
  {
    name: "held-pack-not-foreign",
    breaks: "the next owner of a bucket claims from it while the one before holds a pack of it",
    edits: [
      {
        file: KEYS,
        find: "AND held.lane = ANY ($1::text::int[])",
        replace: "AND held.lane = ANY ($1::text::int[]) AND FALSE",
      },
    ],
    catchers: [races("keeps its bucket closed")],
  },
];
