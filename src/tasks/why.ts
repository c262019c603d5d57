import type { Rate } from "./limits.ts";
import type { TaskRow } from "./sql/inspect.ts";
import type { HoldFact, WhyFacts } from "./sql/why.ts";
import { DEFAULT_TENANT } from "./task.ts";

/** The first reason that keeps a task from running, in the order in which it would have to end. */
export function explain(task: TaskRow, facts: WhyFacts | undefined): string {
  if (facts === undefined) return explainEnd(task);
  if (facts.state === "running") {
    // Claimed with others of its key, it waits in its worker for the one before it.
    return (facts.before === null ? undefined : explainKey(facts)) ?? explainRunning(facts);
  }
  return (
    explainQueue(facts) ??
    explainKey(facts) ??
    explainTime(facts) ??
    explainWorkers(facts) ??
    explainLimits(facts) ??
    explainLine(facts)
  );
}

const at = (date: Date | string): string => new Date(date).toISOString();

function explainEnd({ state, finished_at, reason }: TaskRow): string {
  const when = finished_at === null ? "" : ` at ${at(finished_at)}`;
  if (state === "completed") return `it completed${when}`;
  if (state === "dead") {
    return `it died${when}: ${reason}; redrive it to run it again`;
  }
  return `it was ${state === "failed" ? "refused" : state}${when}: ${reason ?? "no reason given"}`;
}

function explainRunning({ leased_by, lease_until, attempt, cancel_reason }: WhyFacts): string {
  const until = lease_until === null ? "" : `, lease until ${at(lease_until)}`;
  const cancel = cancel_reason === null ? "" : `; its handler was told to stop: ${cancel_reason}`;
  return `it is running on worker ${leased_by}, attempt ${attempt}${until}${cancel}`;
}

function explainQueue({ queue, paused_at, pause_reason }: WhyFacts): string | undefined {
  if (paused_at === null) return undefined;
  const reason = pause_reason === null ? "" : ` (${pause_reason})`;
  return `queue "${queue}" is paused since ${at(paused_at)}${reason}; resume it`;
}

function explainKey({ partition_key: key, holds, before }: WhyFacts): string | undefined {
  if (key === null) return undefined;
  const order: readonly HoldFact["why"][] = ["paused", "parked", "retry", "probation"];
  const hold = order.flatMap((why) => holds?.filter((one) => one.why === why) ?? [])[0];
  if (hold?.why === "paused") {
    const until = hold.until === null ? "until it is resumed" : `until ${at(hold.until)}`;
    return `key "${key}" is paused ${until}${hold.reason === null ? "" : ` (${hold.reason})`}`;
  }
  if (hold?.why === "parked") {
    return (
      `key "${key}" is parked behind task ${hold.task}, which died: ${hold.reason}; ` +
      "redrive or purge that one"
    );
  }
  if (before !== null) {
    const worker = before.worker === null ? "" : ` on worker ${before.worker}`;
    const waits =
      hold?.until === undefined || hold.until === null ? "" : `, tried again at ${at(hold.until)}`;
    return `key "${key}" is held by task ${before.id}, which is ${before.state}${worker}${waits}`;
  }
  if (hold?.why === "probation") {
    return "its worker was lost while it ran; it runs alone when its owner has a free turn";
  }
  return undefined;
}

function explainTime({ is_early, run_at, attempt }: WhyFacts): string | undefined {
  if (!is_early) return undefined;
  return attempt > 0
    ? `attempt ${attempt} failed; it is tried again at ${at(run_at)}`
    : `it is scheduled for ${at(run_at)}`;
}

function explainWorkers(facts: WhyFacts): string | undefined {
  const { workers, queue, tenant, partition_key, owner, key_space } = facts;
  const whose = tenant === DEFAULT_TENANT ? "" : ` for tenant "${tenant}"`;
  if (workers === 0) return `no live worker handles queue "${queue}"${whose}; start one`;
  if (partition_key !== null && owner === null) {
    return (
      `no worker owns the bucket of key "${partition_key}": ` +
      `none handles all queues of key space "${key_space}"${whose}`
    );
  }
  return undefined;
}

function explainLimits(facts: WhyFacts): string | undefined {
  const { queue, limits, granted, rate_until } = facts;
  const { concurrency, rate } = limits;
  if (concurrency !== null && concurrency !== undefined && (granted ?? 0) >= concurrency) {
    return `queue "${queue}" runs as many tasks as its limit allows (${concurrency})`;
  }
  if (rate !== null && rate !== undefined && rate_until !== null) {
    return `queue "${queue}" is ${limitedUntil(rate_until, usedUp(rate))}`;
  }
  return explainKeyRate(facts);
}

const limitedUntil = (until: Date, why: string): string =>
  `rate limited until ${at(until)}: ${why}`;

const usedUp = ({ count, seconds }: Rate): string =>
  count === 1
    ? `its 1 start per ${seconds} s is used up`
    : `its ${count} starts per ${seconds} s are used up`;

/** By the starts that the database knows of: they are counted in the memory of the key's owner. */
function explainKeyRate(facts: WhyFacts): string | undefined {
  const { partition_key: key, key_rates, key_starts, owned_since, asked_at } = facts;
  const waits = (key_rates ?? []).flatMap((rate) => {
    const spent = { since: key_starts?.[rate.count - 1], why: usedUp(rate) };
    const taken = { since: owned_since ?? undefined, why: "its worker has just taken it over" };
    return [spent, taken].flatMap(({ since, why }) => {
      if (since === undefined) return [];
      const until = new Date(new Date(since).getTime() + rate.seconds * 1000);
      return until > asked_at ? [{ until, why }] : [];
    });
  });
  const [longest] = waits.toSorted((a, b) => b.until.getTime() - a.until.getTime());
  if (longest === undefined) return undefined;
  return `key "${key}" is ${limitedUntil(longest.until, longest.why)}`;
}

function explainLine({ ahead, owner, on_probation, key_rates }: WhyFacts): string {
  if (on_probation) return "its worker was lost while it ran; it waits to be run alone";
  const many = ahead >= 1_000 ? "1,000 or more" : String(ahead);
  const by = owner === null ? "" : ` on worker ${owner}`;
  return ahead === 0
    ? `it is next in its lane${by} and starts when a worker has a free slot${rated(key_rates)}`
    : `${many} tasks of its lane are before it${by}`;
}

/** Where nobody but the owner knows what of it is left. */
const rated = (rates: readonly Rate[] | null): string =>
  rates === null ? "" : " and the rate of its key allows it";
