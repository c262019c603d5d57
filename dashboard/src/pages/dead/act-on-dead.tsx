import { useState } from "react";
import { useAct } from "../../api/use-act.ts";
import { plural } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { chunksOf } from "./chunks.ts";

export type DeadAct = "redrive" | "purge";

/** Of one call. */
const MANY = 500;

export interface ActOnDeadProps {
  readonly act: DeadAct;
  readonly ids: readonly string[];
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Runs dead letters again, or deletes them, after asking; it tells how far it is. */
export function ActOnDead({ act, ids, onDone, onClose }: ActOnDeadProps) {
  const { api } = useSession();
  const run = useAct();
  const [done, setDone] = useState(0);
  const isPurge = act === "purge";
  const all = async (): Promise<void> => {
    let total = 0;
    for (const chunk of chunksOf(ids.toSorted(byNumber), MANY)) {
      await api.post(`/v1/dead-letters/${act}`, { ids: chunk });
      total += chunk.length;
      setDone(total);
    }
    onDone();
  };
  const said = `${plural(ids.length, "task")} ${isPurge ? "deleted" : "redriven"}.`;
  return (
    <Confirm
      title={`${isPurge ? "Purge" : "Redrive"} ${plural(ids.length, "dead letter")}?`}
      verb={isPurge ? "Delete for good" : "Redrive"}
      isDangerous={isPurge}
      onConfirm={() => run(all, said)}
      onClose={onClose}
    >
      <p>
        {isPurge
          ? "They are deleted for good, and nobody can get them back. Keys that were parked " +
            "behind one of them flow again."
          : "They become pending with all their attempts, oldest first. What earlier attempts " +
            "did outside of the database may happen again."}
      </p>
      {done > 0 ? (
        <progress
          className="w-full"
          value={done}
          max={ids.length}
          aria-label={`${done} of ${ids.length} done`}
        />
      ) : null}
    </Confirm>
  );
}

const byNumber = (a: string, b: string): number => (BigInt(a) < BigInt(b) ? -1 : 1);
