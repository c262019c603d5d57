import type { Connection } from "../db/database.ts";
import { isUnavailable } from "../db/sqlstate.ts";
import type { PersistedEvent, StreamRef } from "../events/event.ts";
import { BatchTx } from "./batch-tx.ts";
import { concerns } from "./consumer.ts";
import { type BatchContext, Deadline, type Handling, handleInOrder } from "./handling.ts";
import type { GapProof } from "./reader.ts";
import { enterRebuild, refuseStray } from "./rebuild/guard.ts";
import {
  beginBatch,
  commitBatch,
  confirmEvent,
  type Isolation,
  lockAssignment,
  lockCheckpoint,
  recordGap,
  rollbackBatch,
  type StoppedState,
  saveCheckpoint,
} from "./sql/batch.ts";
import { parkEvents, parkStream, readParkedStreams } from "./sql/parked.ts";
import type { Window } from "./window-cache.ts";

/** A window and what is to be done with it beyond handling its events. */
export interface BatchPlan {
  readonly window: Window;
  readonly proof: GapProof | undefined;
  /** The last event of the window is set aside with its stream instead of being handled. */
  readonly park?: { readonly error: string; readonly stack: string | undefined };
  /** Reads again inside the transaction: only the unsafe gap policy needs it. */
  readonly revalidate?: (tx: Connection, checkpoint: bigint) => Promise<Revalidated>;
}

/** What the unsafe gap policy decided inside the transaction. */
export interface Revalidated {
  readonly window: Window;
  readonly skip:
    | { readonly gapPosition: bigint; readonly highestVisible: bigint; readonly openMs: number }
    | undefined;
}

/**
 * How a batch ended. All but `committed` left nothing behind.
 *
 * empty: there was nothing to do. lost: another worker owns the partition. drifted: the checkpoint
 * is not what the window was made from. vanished: the log is not, because a crash took back what
 * had been read. stopped: a person or a poison event stopped it. held: it must not go that far now.
 * failed: the handler threw. An outage of the database is none of these and is thrown.
 */
export type BatchOutcome =
  | {
      readonly kind: "committed";
      readonly checkpoint: bigint;
      readonly handled: number;
      readonly parked: number;
      readonly crossed: string | undefined;
    }
  | { readonly kind: "empty" }
  | { readonly kind: "lost" }
  | { readonly kind: "drifted" }
  | { readonly kind: "vanished" }
  | { readonly kind: "stopped"; readonly state: StoppedState }
  | { readonly kind: "held" }
  | {
      readonly kind: "failed";
      readonly event: PersistedEvent;
      readonly error: unknown;
      /** The time was up: the event may just have been the one at hand. */
      readonly isLate: boolean;
    };

/**
 * begin → own? → unchanged? → handle in order → save → commit.
 *
 * A plan may still be in the making, because its events are being read: the locks are taken
 * meanwhile. Whether those events are still there is then asked behind the locks, when they are
 * known, and nothing is committed, nor any failure counted, before that is answered.
 */
export async function runBatch(
  context: BatchContext,
  planned: BatchPlan | Promise<BatchPlan | undefined>,
): Promise<BatchOutcome> {
  return await context.db.withConnection(async (connection) => {
    const tx = new BatchTx(context.db, connection, context.batchTimeoutMs);
    const deadline = new Deadline(context);
    try {
      const begun = await begin(context, connection, planned);
      if ("kind" in begun) {
        await rollbackBatch(connection);
        return begun;
      }
      const outcome = await work(context, connection, { ...begun, tx, deadline });
      if (outcome.kind === "failed" || outcome.kind === "vanished") {
        if (deadline.isReached) connection.destroy();
        else await rollbackBatch(connection);
      }
      return outcome;
    } finally {
      deadline.clear();
      tx.close();
    }
  });
}

interface Begun {
  readonly plan: BatchPlan;
  /** Whether the log still holds what the window was made of. */
  readonly isStillThere: Promise<boolean>;
}

async function begin(
  context: BatchContext,
  connection: Connection,
  planned: BatchPlan | Promise<BatchPlan | undefined>,
): Promise<Begun | BatchOutcome> {
  const { partition, workerId, batchTimeoutMs } = context;
  const known = planned instanceof Promise ? undefined : planned;
  const isolation: Isolation = known?.revalidate === undefined ? "READ COMMITTED" : "SERIALIZABLE";
  // Executed in this order, in one round trip.
  const begun = connection.together(() =>
    Promise.all([
      beginBatch(connection, isolation),
      lockAssignment(connection, partition.name, batchTimeoutMs, workerId),
      lockCheckpoint(connection, partition.name, known?.window.events.at(-1)?.position),
      planned,
    ]),
  );
  const [, assignment, checkpoint, plan] = await begun;
  if (assignment?.ownerId !== workerId) return { kind: "lost" };
  if (checkpoint === undefined) return { kind: "lost" };
  if (checkpoint.state !== undefined) return { kind: "stopped", state: checkpoint.state };
  if (plan === undefined) return { kind: "empty" };
  const last = plan.window.events.at(-1);
  const isGone = known !== undefined && last !== undefined && checkpoint.lastEventId !== last.id;
  if (isGone) return { kind: "vanished" };
  if (checkpoint.position !== plan.window.after) return { kind: "drifted" };
  const { hold = plan.window.target } = checkpoint;
  if (plan.window.target > hold && plan.revalidate === undefined) return { kind: "held" };
  if (!(await enterRebuild(connection, partition))) return { kind: "lost" };
  const isKnown = known !== undefined || last === undefined;
  const isStillThere = isKnown ? Promise.resolve(true) : confirmEvent(connection, last);
  // What else may be wrong with the connection is told by those who use it next.
  return { plan, isStillThere: isStillThere.catch(() => true) };
}

interface Running extends Handling, Begun {}

async function work(
  context: BatchContext,
  connection: Connection,
  running: Running,
): Promise<BatchOutcome> {
  const { plan } = running;
  const revalidated = await plan.revalidate?.(connection, plan.window.after);
  const whole = revalidated?.window ?? plan.window;
  const events = whole.events.filter((event) => concerns(context.partition, event));
  const all = await splitParked(context, connection, plan, events);
  const { failure, next } = await handleInOrder(context, connection, running, all.handle);
  // Before ROLLBACK or COMMIT is on the wire: what follows those is a transaction of its own.
  running.tx.close();
  const isLate = running.deadline.isReached;
  if (failure !== undefined) {
    const isItsOwn = isLate || (await running.isStillThere);
    return isItsOwn ? { kind: "failed", ...failure, isLate } : { kind: "vanished" };
  }
  const window = next === undefined ? whole : cutWindow(whole, next.position - 1n);
  const setAside = next === undefined ? all : before(all, next);
  try {
    if (setAside.handle.length > 0) await refuseStray(connection, context.partition);
    const crossed = await finish(context, connection, { window, plan, revalidated, setAside });
    return {
      kind: "committed",
      checkpoint: window.target,
      handled: setAside.handle.length,
      parked: setAside.park.length,
      crossed,
    };
  } catch (error) {
    if (!(await running.isStillThere)) return { kind: "vanished" };
    // A constraint checked at commit, or a query nobody awaited: the handler's doing.
    const event = setAside.handle.at(-1);
    if (isUnavailable(error) || event === undefined) throw error;
    return { kind: "failed", event, error, isLate };
  }
}

interface SetAside {
  readonly handle: readonly PersistedEvent[];
  readonly park: readonly PersistedEvent[];
}

const keyOf = (stream: StreamRef): string => JSON.stringify([stream.type, stream.id]);

async function splitParked(
  context: BatchContext,
  connection: Connection,
  plan: BatchPlan,
  events: readonly PersistedEvent[],
): Promise<SetAside> {
  if (!context.parks()) return { handle: events, park: [] };
  const { partition } = context;
  const parked = new Set((await readParkedStreams(connection, partition.name)).map(keyOf));
  const poison = plan.park === undefined ? undefined : events.at(-1);
  if (poison !== undefined && plan.park !== undefined) {
    await parkStream(connection, partition.name, poison.stream, plan.park);
  }
  const isParked = (event: PersistedEvent): boolean =>
    event === poison || parked.has(keyOf(event.stream));
  return {
    handle: events.filter((event) => !isParked(event)),
    park: events.filter(isParked),
  };
}

function before({ handle, park }: SetAside, next: PersistedEvent): SetAside {
  const isBefore = (event: PersistedEvent): boolean => event.position < next.position;
  return { handle: handle.filter(isBefore), park: park.filter(isBefore) };
}

async function finish(
  context: BatchContext,
  connection: Connection,
  done: {
    readonly window: Window;
    readonly plan: BatchPlan;
    readonly revalidated: Revalidated | undefined;
    readonly setAside: SetAside;
  },
): Promise<string | undefined> {
  const { window, plan, revalidated, setAside } = done;
  const { name } = context.partition;
  const gap = describeGap(context, window, plan.proof, revalidated);
  const saved = connection.together(() =>
    Promise.all([
      gap === undefined ? undefined : recordGap(connection, gap),
      setAside.park.length === 0 ? undefined : parkEvents(connection, name, setAside.park),
      saveCheckpoint(connection, name, window.after, window.target),
      commitBatch(connection),
    ]),
  );
  const [, , , committed] = await saved;
  if (!committed) throw new Error("a failed statement in the batch was not awaited");
  return gap?.how;
}

/** What the audit says about positions in the window that have no event. */
function describeGap(
  context: BatchContext,
  window: Window,
  proof: GapProof | undefined,
  revalidated: Revalidated | undefined,
): Parameters<typeof recordGap>[1] | undefined {
  const { events, after, target } = window;
  const { partition, workerId } = context;
  const missing = target - after - BigInt(events.length);
  const common = { partition: partition.name, workerId, missing, skipTo: target };
  if (revalidated !== undefined) {
    const { skip } = revalidated;
    if (skip === undefined) return undefined;
    const { gapPosition, highestVisible, openMs } = skip;
    return {
      ...common,
      gapPosition,
      highestVisible,
      openSeconds: openMs / 1000,
      how: "unsafe-time",
    };
  }
  if (missing === 0n || proof === undefined) return undefined;
  let gapPosition = after + 1n;
  for (const event of events) {
    if (event.position !== gapPosition) break;
    gapPosition += 1n;
  }
  const { how, ceiling, fence, openMs } = proof;
  const highestVisible = events.at(-1)?.position ?? target;
  return {
    ...common,
    gapPosition,
    highestVisible,
    openSeconds: openMs / 1000,
    how,
    ceiling,
    fence,
  };
}

/** The part of a window up to and including `target`. */
export function cutWindow(window: Window, target: bigint): Window {
  const events = window.events.filter((event) => event.position <= target);
  return { after: window.after, target, events };
}
