import { LEASE_MUTANTS } from "./list/leases.ts";
import { LOG_MUTANTS } from "./list/log.ts";
import { ORDER_MUTANTS } from "./list/order.ts";
import { PACK_MUTANTS } from "./list/packs.ts";
import { REMOTE_MUTANTS } from "./list/remote.ts";
import type { Mutant } from "./mutant.ts";

export const MUTANTS: readonly Mutant[] = [
  ...LEASE_MUTANTS,
  ...LOG_MUTANTS,
  ...ORDER_MUTANTS,
  ...PACK_MUTANTS,
  ...REMOTE_MUTANTS,
];
