/**
 * The packs of a lane behind a floor, to be read in the order of `packOrder`. Lane and id are
 * compared as one row, because then nothing but the index of lanes can give the order: with
 * `lane = … ORDER BY id` the planner walks the primary key, through the packs of all other lanes
 * and through all dead ones, as soon as it has learnt that most packs are of one lane.
 */
export const packsBehind = (pack: string, lane: string, floor: string): string =>
  `(${pack}.lane, ${pack}.id) > (${lane}, ${floor}) AND ${pack}.lane <= ${lane}`;

/** The packs of a lane that stand before one. */
export const packsBefore = (pack: string, lane: string, id: string): string =>
  `(${pack}.lane, ${pack}.id) < (${lane}, ${id}) AND ${pack}.lane >= ${lane}`;

/** Within one lane, by id. */
export const packOrder = (pack: string): string => `${pack}.lane, ${pack}.id`;

/**
 * The same of rows, for a look that nobody has shaped the plan of: one that expects few rows in a
 * lane would read all of them and sort.
 */
export const rowsBehind = (task: string, lane: string, floor: string): string =>
  `(${task}.lane, ${task}.claim_order) > (${lane}, ${floor}) AND ${task}.lane <= ${lane}
            AND ${task}.claim_order > ${floor}`;

export const rowOrder = (task: string): string => `${task}.lane, ${task}.claim_order`;
