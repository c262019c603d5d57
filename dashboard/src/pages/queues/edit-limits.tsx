import { useState } from "react";
import { part } from "../../api/http.ts";
import type { Queue } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { CheckField, TextField } from "../../ui/field.tsx";
import { changesOf, type LimitTexts, textsOf } from "./limit-text.ts";

/** Changes what a queue may do at once and per second, after asking. */
export function EditLimits({ queue }: { queue: Queue }) {
  const [isAsking, setAsking] = useState(false);
  return (
    <>
      <Button aria-label={`Limits of queue ${queue.name}`} onClick={() => setAsking(true)}>
        Limits
      </Button>
      {isAsking ? <LimitDialog queue={queue} onClose={() => setAsking(false)} /> : null}
    </>
  );
}

const FIELDS: readonly (readonly [keyof LimitTexts, string])[] = [
  ["concurrency", "Tasks that run at once"],
  ["rate", "Starts per time, such as 50 per 1 s"],
  ["keyRate", "Starts of one key per time"],
];

function LimitDialog({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const { api } = useSession();
  const act = useAct();
  const { name } = queue;
  // As they were when it opened: what others change meanwhile is not what this person changed.
  const [limits] = useState(queue.limits);
  const [texts, setTexts] = useState(() => textsOf(limits));
  const [isReset, setReset] = useState(false);
  const path = `/v1/queues/${part(name)}/limits`;
  const save = async (): Promise<void> => {
    if (isReset) {
      await api.delete(path);
      return;
    }
    const changes = changesOf(limits, texts);
    if (Object.keys(changes).length === 0) throw new Error("Nothing was changed.");
    await api.put(path, changes);
  };
  return (
    <Confirm
      title={`Change the limits of queue ${name}?`}
      verb="Change them"
      isDangerous
      onConfirm={() => act(save, `The limits of queue ${name} are changed.`)}
      onClose={onClose}
    >
      <p>
        They hold for all workers and tenants at once, over what the definition says. An empty field
        is no limit; 0 at once lets nothing start.
      </p>
      {FIELDS.map(([field, label]) => (
        <TextField
          key={field}
          label={label}
          value={texts[field]}
          disabled={isReset}
          onChange={(event) => setTexts({ ...texts, [field]: event.target.value })}
        />
      ))}
      <CheckField
        label="Let the limits of the definition hold again"
        checked={isReset}
        onChange={(event) => setReset(event.target.checked)}
      />
    </Confirm>
  );
}
