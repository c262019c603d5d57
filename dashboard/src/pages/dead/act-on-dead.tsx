import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { Api } from "../../api/http.ts";
import { useAct } from "../../api/use-act.ts";
import { formatCount, plural } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { chunksOf } from "./chunks.ts";
import { type DeadFilter, describeFilter, givenOf } from "./dead-filter.ts";
import type { Which } from "./selection.ts";

export type DeadAct = "redrive" | "purge";

/** Of one call: short enough for others to get by, and for the bar to move. */
const MANY = 500;

export interface ActOnDeadProps {
  readonly act: DeadAct;
  readonly which: Which;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Runs dead letters again, or deletes them, after asking; it tells how far it is. */
export function ActOnDead({ act, which, onDone, onClose }: ActOnDeadProps) {
  const { api } = useSession();
  const run = useAct();
  const [done, setDone] = useState(0);
  const isStopped = useStopped();
  const counted = useCount(which);
  const isPurge = act === "purge";
  const total = "ids" in which ? which.ids.length : counted?.count;
  const all = async (): Promise<void> => {
    const onProgress = (count: number): boolean => {
      setDone(count);
      return !isStopped.current;
    };
    if ("ids" in which) await actOnIds(api, act, which.ids, onProgress);
    else if (counted === undefined) throw new Error("They are still being counted.");
    else await actOnFilter(api, { act, filter: which.filter, before: counted.at, onProgress });
    onDone();
  };
  const many =
    total === undefined
      ? "…"
      : `${counted?.isCut ? "more than " : ""}${plural(total, "dead letter")}`;
  return (
    <Confirm
      title={`${isPurge ? "Purge" : "Redrive"} ${many}?`}
      verb={isPurge ? "Delete for good" : "Redrive"}
      isDangerous={isPurge}
      stopVerb="Stop here"
      onConfirm={() => run(all, isPurge ? "They are deleted." : "They run again.")}
      onClose={onClose}
    >
      {"filter" in which ? <p>{describeFilter(which.filter)}</p> : null}
      <p>
        {isPurge
          ? "They are deleted for good, and nobody can get them back. Keys that were parked " +
            "behind one of them flow again."
          : "They become pending with all their attempts, oldest first. What earlier attempts " +
            "did outside of the database may happen again. One that dies again meanwhile stays."}
      </p>
      {done > 0 ? <Progress done={done} total={Math.max(total ?? 0, done)} /> : null}
    </Confirm>
  );
}

function Progress({ done, total }: { done: number; total: number }) {
  const text = `${formatCount(done)} of ${formatCount(total)} done`;
  return (
    <div>
      <progress className="bar" value={done} max={total} aria-label={text} />
      <p className="mt-1 text-xs text-muted">{text}</p>
    </div>
  );
}

/** Whether the one who asked has left. */
function useStopped(): { readonly current: boolean } {
  const stopped = useRef(false);
  useEffect(() => {
    stopped.current = false;
    return () => {
      stopped.current = true;
    };
  }, []);
  return stopped;
}

interface Counted {
  readonly count: number;
  readonly isCut: boolean;
  /** Who died later is not meant. */
  readonly at: string;
}

function useCount(which: Which): Counted | undefined {
  const { api } = useSession();
  const filter = "filter" in which ? which.filter : undefined;
  const { data } = useQuery({
    queryKey: ["dead-count", filter],
    queryFn: ({ signal }) =>
      api.get<Counted>("/v1/dead-letters/count", givenOf(filter ?? {}), signal),
    enabled: filter !== undefined,
    // As many as were asked for: counted again, the bar would be full as soon as it began.
    staleTime: "static",
    gcTime: 0,
  });
  return data;
}

/** Tells how many are done, and hears whether to go on. */
type OnProgress = (done: number) => boolean;

async function actOnIds(
  api: Api,
  act: DeadAct,
  ids: readonly string[],
  onProgress: OnProgress,
): Promise<void> {
  let done = 0;
  for (const chunk of chunksOf(ids.toSorted(byNumber), MANY)) {
    await api.post(`/v1/dead-letters/${act}`, { ids: chunk });
    done += chunk.length;
    if (!onProgress(done)) return;
  }
}

interface ByFilter {
  readonly act: DeadAct;
  readonly filter: DeadFilter;
  readonly before: string;
  readonly onProgress: OnProgress;
}

async function actOnFilter(api: Api, { act, filter, before, onProgress }: ByFilter): Promise<void> {
  const given = givenOf(filter);
  const which = Object.keys(given).length === 0 ? { all: true } : given;
  const body = { ...which, diedBefore: before, limit: MANY };
  let done = 0;
  for (;;) {
    const { redriven, purged, hasMore } = await api.post<{
      redriven?: number;
      purged?: number;
      hasMore: boolean;
    }>(`/v1/dead-letters/${act}`, body);
    done += redriven ?? purged ?? 0;
    if (!onProgress(done) || !hasMore) return;
  }
}

const byNumber = (a: string, b: string): number => (BigInt(a) < BigInt(b) ? -1 : 1);
