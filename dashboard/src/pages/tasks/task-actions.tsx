import { useState } from "react";
import type { Task } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { EditAndRedrive } from "./edit-and-redrive.tsx";

export interface TaskActionsProps {
  readonly task: Task;
  /** Its members as they were written. */
  readonly raw: ReadonlyMap<string, string>;
}

/** What may be done to a task as it is now, each after asking. */
export function TaskActions({ task, raw }: TaskActionsProps) {
  const { may } = useSession();
  const [asked, setAsked] = useState<"cancel" | "retry" | "edit">();
  const close = (): void => setAsked(undefined);
  const { state } = task;
  const isLive = state === "scheduled" || state === "pending" || state === "running";
  const canRetry = state === "scheduled" || (!isLive && state !== "completed");
  const retry = state === "dead" ? "Redrive" : state === "scheduled" ? "Run now" : "Retry";
  return (
    <div className="flex flex-wrap gap-2">
      {canRetry && may("task.retry") ? (
        <Button kind="primary" onClick={() => setAsked("retry")}>
          {retry}
        </Button>
      ) : null}
      {state === "dead" && may("dead.redrive") ? (
        <Button onClick={() => setAsked("edit")}>Edit and redrive</Button>
      ) : null}
      {isLive && may("task.cancel") ? (
        <Button kind="danger" onClick={() => setAsked("cancel")}>
          Cancel
        </Button>
      ) : null}
      {asked === "retry" ? <Retry task={task} verb={retry} onClose={close} /> : null}
      {asked === "cancel" ? <Cancel task={task} onClose={close} /> : null}
      {asked === "edit" ? (
        <EditAndRedrive task={task} payload={raw.get("payload") ?? ""} onClose={close} />
      ) : null}
    </div>
  );
}

interface AskProps {
  readonly task: Task;
  readonly onClose: () => void;
}

function Retry({ task: { id, state }, verb, onClose }: AskProps & { verb: string }) {
  const { api } = useSession();
  const act = useAct();
  return (
    <Confirm
      title={`${verb} task ${id}?`}
      verb={verb}
      onConfirm={() => act(() => api.post(`/v1/tasks/${id}/retry`), `Task ${id} is pending.`)}
      onClose={onClose}
    >
      <p>
        {state === "scheduled"
          ? "It becomes pending at once instead of at its time."
          : "It becomes pending with all its attempts, and runs as soon as a worker takes it. " +
            "What earlier attempts did outside of the database may happen again."}
      </p>
    </Confirm>
  );
}

function Cancel({ task: { id, state }, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  return (
    <Confirm
      title={`Cancel task ${id}?`}
      verb="Cancel the task"
      isDangerous
      reason="optional"
      onConfirm={(reason) =>
        act(
          () => api.post(`/v1/tasks/${id}/cancel`, reason === undefined ? {} : { reason }),
          state === "running" ? `Task ${id} is told to stop.` : `Task ${id} is cancelled.`,
        )
      }
      onClose={onClose}
    >
      <p>
        {state === "running"
          ? "Its handler is told to stop. What it has done outside of the database stays done."
          : "It never runs."}
      </p>
    </Confirm>
  );
}
