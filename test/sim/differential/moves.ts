import { bucketOf } from "../../../src/cluster/ring.ts";
import { moveBusyAssignment, moveFreeAssignments } from "../../../src/cluster/sql/assignments.ts";
import { announceChange } from "../../../src/cluster/sql/changes.ts";
import {
  beginTerm,
  endTerm,
  holdTerm,
  releaseLease,
  takeLease,
} from "../../../src/cluster/sql/leader.ts";
import {
  beatHeart,
  deleteWorker,
  markDeadWorkers,
  markDraining,
  readLiveWorkers,
  removeStaleWorkers,
} from "../../../src/cluster/sql/workers.ts";
import type { Connection, Queryable } from "../../../src/db/database.ts";
import {
  bucketSet,
  readKeySpaceOwners,
  readRing,
  removeBucketOwner,
  writeBucketOwner,
} from "../../../src/tasks/sql/bucket-owners.ts";
import {
  barClaim,
  type ClaimedRows,
  claimTasks,
  FIELD,
  lookAtLanes,
  undoClaim,
} from "../../../src/tasks/sql/claim.ts";
import {
  buryTasks,
  completeTasks,
  type Ended,
  endTasks,
  findCompleted,
  findLocked,
  putBackTasks,
} from "../../../src/tasks/sql/finish.ts";
import { advanceHolds, nextHoldSeconds } from "../../../src/tasks/sql/holds.ts";
import {
  promoteTasks,
  secondsToClaim,
  secondsToScheduled,
} from "../../../src/tasks/sql/housekeeping.ts";
import { lookAtKeyLanes } from "../../../src/tasks/sql/key-lanes.ts";
import {
  claimHeldHeads,
  claimKeyedTasks,
  findForeignLanes,
  readOwnedBuckets,
} from "../../../src/tasks/sql/keys.ts";
import { renewLeases } from "../../../src/tasks/sql/lease.ts";
import {
  forgetClaims,
  lockDueClaims,
  lockLostTasks,
  putOnProbation,
} from "../../../src/tasks/sql/reap.ts";
import type { Random } from "../../support/random.ts";
import type { SimServer } from "../server.ts";
import { claimUuid, KEY_LANES, KEYS, TERM, WORKERS } from "./start.ts";

const PACKS = { keySpaceId: 0, floor: 0, buckets: bucketSet(KEYS.map((key) => bucketOf(key))) };

/** One statement, as the engine's function makes it; gives what can be compared. */
export interface Move {
  readonly name: string;
  readonly make: (db: Queryable) => Promise<unknown>;
}

const ids = (some: Iterable<string>): string[] => [...some].sort();
const numbers = (some: Iterable<number>): number[] => [...some].sort((a, b) => a - b);
const taken = ({ rows, missed, hasPassed }: ClaimedRows): unknown => ({
  rows: rows.map((row) => row.split(FIELD).slice(0, 5).join(" ")).sort(),
  missed,
  hasPassed,
});
const ended = ({ accepted, locked }: Ended): unknown => [ids(accepted), ids(locked)];
const ALIVE_SECONDS = 1_000;
const MARGIN_SECONDS = 500;

/** Draws statements with parameters that mean something in the tables as they are now. */
export class Moves {
  readonly #random: Random;
  readonly #scene: SimServer;
  #claims = 100;

  constructor(random: Random, scene: SimServer) {
    this.#random = random;
    this.#scene = scene;
  }

  #some<T>(from: readonly T[]): T {
    return from[this.#random.below(from.length)]!;
  }

  get #worker(): string {
    return this.#some(WORKERS);
  }

  /** Of the leader that is there now, most of the time. */
  get #leader(): { term: bigint; leaderId: string } {
    const [row] = this.#scene.server.store.committed(this.#scene.tables.terms);
    if (row === undefined || this.#random.chance(0.2)) {
      return { term: BigInt(TERM), leaderId: this.#worker };
    }
    return { term: BigInt(row.term), leaderId: row.leaderId ?? this.#worker };
  }

  /** What some worker may think that it holds: true, or out of date. */
  get #token(): { id: string; generation: number; claimId: string } {
    const tasks = this.#scene.server.store.committed(this.#scene.tables.tasks);
    const task = tasks.length === 0 ? undefined : this.#some(tasks);
    const isTrue = this.#random.chance(0.8);
    return {
      id: String(task?.id ?? 1),
      generation: isTrue ? (task?.generation ?? 1) : 1 + this.#random.below(3),
      claimId: isTrue ? (task?.claimId ?? claimUuid(1)) : claimUuid(this.#random.below(10)),
    };
  }

  get #tokens(): { id: string; generation: number; claimId: string }[] {
    const tokens = Array.from({ length: 1 + this.#random.below(3) }, () => this.#token);
    return tokens.filter(({ id }, place) => tokens.findIndex((one) => one.id === id) === place);
  }

  get #claim(): { claimId: string; workerId: string; leaseSeconds: number; proofs: [] } {
    this.#claims += 1;
    const leaseSeconds = this.#random.chance(0.5) ? ALIVE_SECONDS : -ALIVE_SECONDS;
    return { claimId: claimUuid(this.#claims), workerId: this.#worker, leaseSeconds, proofs: [] };
  }

  get #owner(): { workerId: string; epoch: string } {
    const owners = this.#scene.server.store.committed(this.#scene.tables.owners);
    if (owners.length === 0 || this.#random.chance(0.2)) {
      return { workerId: this.#worker, epoch: "1" };
    }
    const { workerId, epoch } = this.#some(owners);
    return { workerId, epoch: String(epoch) };
  }

  get #claimIds(): string[] {
    const claims = this.#scene.server.store.committed(this.#scene.tables.claims);
    return claims.filter(() => this.#random.chance(0.6)).map(({ claimId }) => claimId);
  }

  draw(): Move {
    const [name, make] = this.#some(Object.entries(this.#all));
    return { name, make: make() };
  }

  /** Parameters are drawn before it is sent, once for both sides. */
  readonly #all: Record<string, () => Move["make"]> = {
    holdTerm: () => {
      const { term, leaderId } = this.#leader;
      return (db) => holdTerm(db, term, leaderId);
    },
    beginTerm: () => {
      const worker = this.#worker;
      return async (db) => String(await beginTerm(db, worker));
    },
    endTerm: () => {
      const { term, leaderId } = this.#leader;
      return (db) => endTerm(db, term, leaderId);
    },
    takeLease: () => {
      const worker = this.#worker;
      const seconds = this.#random.chance(0.5) ? ALIVE_SECONDS : -ALIVE_SECONDS;
      return (db) => takeLease(db, worker, seconds);
    },
    releaseLease: () => {
      const worker = this.#worker;
      return (db) => releaseLease(db, worker);
    },
    beatHeart: () => {
      const worker = this.#worker;
      return (db) => beatHeart(db, worker, "active", {});
    },
    markDraining: () => {
      const worker = this.#worker;
      return (db) => markDraining(db, worker);
    },
    markDead: () => {
      const worker = this.#worker;
      return async (db) => ids(await markDeadWorkers(db, MARGIN_SECONDS, worker));
    },
    removeStale: () => {
      const worker = this.#worker;
      return async (db) => ids(await removeStaleWorkers(db, 1, worker));
    },
    deregister: () => {
      const worker = this.#worker;
      return (db) => deleteWorker(db, worker);
    },
    liveWorkers: () => async (db) => {
      const live = await readLiveWorkers(db, MARGIN_SECONDS);
      return ids(live.map((one) => `${one.workerId} ${one.isActive}`));
    },
    announce: () => (db) => announceChange(db, "changes"),
    moveFree: () => {
      const leader = this.#leader;
      const rows = this.#scene.server.store.committed(this.#scene.tables.assignments);
      const changes = rows.map(({ consumerName, workerId }) => ({
        consumer: consumerName,
        from: workerId ?? undefined,
        to: this.#worker,
      }));
      return async (db) => ids(await moveFreeAssignments(db, leader, changes));
    },
    moveBusy: () => {
      const leader = this.#leader;
      const rows = this.#scene.server.store.committed(this.#scene.tables.assignments);
      const { consumerName, workerId } = this.#some(rows);
      const change = { consumer: consumerName, from: workerId ?? undefined, to: this.#worker };
      return (db) => moveBusyAssignment(db as Connection, leader, change, 60_000);
    },
    claim: () => {
      const request = {
        ...this.#claim,
        isBesideOthers: this.#random.chance(0.5),
        waitMs: 60_000,
      };
      const lane = this.#some([1, 1, 2]);
      const lanes = [{ lane, floor: 0, take: 1 + this.#random.below(2) }];
      return async (db) => taken(await claimTasks(db, request, lanes));
    },
    claimKeyed: () => {
      const request = { ...this.#claim, ...this.#owner, keySpaceId: 0, baseId: 0 };
      const exceptKeys = this.#random.chance(0.2) ? [`t\u001f${this.#some(KEYS)}`] : [];
      const take = 1 + this.#random.below(3);
      const lanes = KEY_LANES.map((lane) => ({ lane, floor: 0, start: 0, held: [], take }));
      return async (db) =>
        taken(
          await claimKeyedTasks(db, { ...request, exceptKeys, packs: PACKS, marker: null }, lanes),
        );
    },
    claimHeads: () => {
      const request = { ...this.#claim, ...this.#owner, keySpaceId: 0, baseId: 0 };
      const exceptKeys = this.#random.chance(0.2) ? [`t\u001f${this.#some(KEYS)}`] : [];
      const wanted = { all: 2, probation: this.#random.below(2), exceptQueues: [], exceptKeys };
      return async (db) => taken(await claimHeldHeads(db, request, KEY_LANES, wanted));
    },
    bar: () => {
      const claimId = this.#random.chance(0.5) ? claimUuid(this.#claims) : this.#claim.claimId;
      const worker = this.#worker;
      return (db) => barClaim(db, claimId, worker);
    },
    undo: () => {
      // In which order one statement draws several numbers is nobody's business.
      const claims = this.#scene.server.store.committed(this.#scene.tables.claims);
      const [claim] = claims.filter(({ taskIds }) => taskIds.length === 1);
      const claimId = claim?.claimId ?? claimUuid(1);
      return (db) => undoClaim(db, claimId);
    },
    look: () => async (db) => {
      const look = await lookAtLanes(db, ["work"], new Map([[1, 0]]));
      return look?.lanes.map(({ lane, headOrder }) => `${lane} ${headOrder}`).sort();
    },
    lookAtKeys: () => {
      const exceptKeys = this.#random.chance(0.3) ? [`t\u001f${this.#some(KEYS)}`] : [];
      const held = KEYS.map((key) => ({ tenant: "t", key }));
      const lanes = KEY_LANES.map((lane, place) => ({
        lane,
        floor: 0,
        start: this.#random.below(10),
        held: held.slice(place, place + 1),
      }));
      return async (db) => {
        const look = await lookAtKeyLanes(db, { packs: PACKS, exceptKeys, heldMax: 5 }, lanes);
        return look.lanes.map((one) => JSON.stringify(one)).sort();
      };
    },
    foreign: () => {
      const ours = this.#tokens.map(({ id }) => id);
      return async (db) => numbers(await findForeignLanes(db, KEY_LANES, ours));
    },
    mine: () => {
      const { workerId } = this.#owner;
      return (db) => readOwnedBuckets(db, workerId);
    },
    renew: () => {
      const tokens = this.#tokens.map(({ id, ...rest }) => ({ ...rest, taskId: id }));
      return async (db) => {
        const renewals = await renewLeases(db, tokens, ALIVE_SECONDS);
        const answers = renewals.map((one) => (one === undefined ? "lost" : one.until !== null));
        return answers.map((answer, place) => `${tokens[place]?.taskId} ${answer}`).sort();
      };
    },
    complete: () => {
      const tokens = this.#tokens.map((token) => ({ ...token, result: "" }));
      const claims = this.#claimIds.slice(0, 1);
      return async (db) => {
        const accepted = await completeTasks(db, tokens, claims);
        return accepted === undefined ? "all" : ids(accepted);
      };
    },
    findCompleted: () => {
      const rows = this.#scene.server.store.committed(this.#scene.tables.ends);
      const tokens = rows.map(({ taskId, generation, claimId }) => {
        return { id: String(taskId), generation, claimId: claimId ?? "", result: "" };
      });
      return async (db) => ids(await findCompleted(db, tokens));
    },
    findLocked: () => {
      const tokens = this.#tokens;
      return async (db) => ids(await findLocked(db, tokens));
    },
    putBack: () => {
      const rows = this.#tokens.map(({ id, generation, claimId }) => ({
        id,
        generation,
        claim_id: claimId,
        outcome: "failed" as const,
        reason: "drawn",
        delay: this.#random.chance(0.5) ? 0 : ALIVE_SECONDS,
        refund: this.#random.chance(0.5),
      }));
      return async (db) => ended(await putBackTasks(db, rows));
    },
    end: () => {
      const rows = this.#tokens.map(({ id, generation, claimId }) => {
        const end = { outcome: "failed" as const, state: "failed" as const };
        return { id, generation, claim_id: claimId, ...end };
      });
      return async (db) => ended(await endTasks(db, rows));
    },
    bury: () => {
      const rows = this.#tokens.map(({ id, generation, claimId }) => {
        const end = { outcome: "lost" as const, cause: "worker_lost" as const, park: false };
        return { id, generation, claim_id: claimId, ...end, reason: "drawn" };
      });
      return async (db) => ended(await buryTasks(db, rows));
    },
    dueClaims: () => async (db) => ids(await lockDueClaims(db, 10)),
    lost: () => {
      const claims = this.#claimIds;
      return async (db) =>
        (await lockLostTasks(db, claims)).map((task) => `${task.id} ${task.on_probation}`).sort();
    },
    probation: () => {
      const { id } = this.#token;
      return (db) => putOnProbation(db, [id]);
    },
    forget: () => {
      const claims = this.#claimIds;
      return (db) => forgetClaims(db, claims);
    },
    probe: () => async (db) => {
      const seconds = [await secondsToClaim(db), await secondsToScheduled(db)];
      return seconds.map(Math.sign);
    },
    promote: () => (db) => promoteTasks(db, 10),
    advance: () => async (db) => numbers(await advanceHolds(db, 0, KEY_LANES)),
    nextHold: () => async (db) => (await nextHoldSeconds(db, 0, KEY_LANES, [])) > 0,
    owners: () => async (db) => {
      const spaces = await readKeySpaceOwners(db);
      return spaces.map(({ owners, ...space }) => ({
        ...space,
        owners: owners.map((owner) => JSON.stringify(owner)).sort(),
      }));
    },
    ring: () => async (db) => {
      const { members, spaces } = await readRing(db, MARGIN_SECONDS);
      const sizes = spaces.map(({ sizes, ...space }) => ({
        ...space,
        sizes: sizes.map((size) => JSON.stringify(size)).sort(),
      }));
      return { members: ids(members.map((one) => one.workerId)), sizes };
    },
    writeOwner: () => {
      const { workerId: worker, epoch } = this.#owner;
      const buckets = KEYS.filter(() => this.#random.chance(0.5)).map((key) => bucketOf(key));
      return (db) => writeBucketOwner(db, 0, { worker, epoch }, buckets);
    },
    removeOwner: () => {
      const { workerId: worker, epoch } = this.#owner;
      return (db) => removeBucketOwner(db, 0, { worker, epoch });
    },
  };
}
