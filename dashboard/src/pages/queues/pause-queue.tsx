import { useState } from "react";
import { part } from "../../api/http.ts";
import type { Queue } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";

/** Stops a queue, or lets it go on, after asking. */
export function PauseQueue({ queue: { name, isPaused } }: { queue: Queue }) {
  const { api } = useSession();
  const act = useAct();
  const [isAsking, setAsking] = useState(false);
  const verb = isPaused ? "Resume" : "Pause";
  const send = (reason: string | undefined): Promise<void> => {
    const path = `/v1/queues/${part(name)}/${isPaused ? "resume" : "pause"}`;
    const given = reason === undefined ? {} : { reason };
    const body = isPaused ? undefined : given;
    return act(() => api.post(path, body), `Queue ${name} is ${isPaused ? "open" : "paused"}.`);
  };
  return (
    <>
      <Button aria-label={`${verb} queue ${name}`} onClick={() => setAsking(true)}>
        {verb}
      </Button>
      {isAsking ? (
        <Confirm
          title={`${verb} queue ${name}?`}
          verb={verb}
          {...(isPaused ? {} : { reason: "optional" as const })}
          onConfirm={send}
          onClose={() => setAsking(false)}
        >
          <p>
            {isPaused
              ? "Workers claim its tasks again at once, of all tenants."
              : "Nothing more of it is claimed, of any tenant, until somebody resumes it. " +
                "What runs goes on, and tasks can still be enqueued."}
          </p>
        </Confirm>
      ) : null}
    </>
  );
}
