import { useState } from "react";
import { part } from "../../api/http.ts";
import type { Consumer } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { formatCount } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { TextField } from "../../ui/field.tsx";

type Asked = "pause" | "resume" | "skip" | "rewind";

export interface ConsumerActionsProps {
  readonly consumer: Consumer;
  /** Whether it is split: then acts are about all of its partitions. */
  readonly isWhole?: boolean;
}

/** What may be done to a consumer as it is now, each after asking. */
export function ConsumerActions({ consumer, isWhole = false }: ConsumerActionsProps) {
  const { may } = useSession();
  const [asked, setAsked] = useState<Asked>();
  const props = { consumer, isWhole, onClose: () => setAsked(undefined) };
  const { state, parkedEvents } = consumer;
  const isStopped = state === "paused" || state === "quarantined";
  if (!may("cluster.change")) return null;
  return (
    <div className="flex flex-wrap gap-2">
      {isStopped || parkedEvents > 0 ? (
        <Button kind="primary" onClick={() => setAsked("resume")}>
          Resume
        </Button>
      ) : null}
      {isStopped && !isWhole ? null : <Button onClick={() => setAsked("pause")}>Pause</Button>}
      {state === "quarantined" && !isWhole ? (
        <Button kind="danger" onClick={() => setAsked("skip")}>
          Skip the event
        </Button>
      ) : null}
      <Button kind="danger" onClick={() => setAsked("rewind")}>
        Rewind
      </Button>
      {asked === "pause" ? <Pause {...props} /> : null}
      {asked === "resume" ? <Resume {...props} /> : null}
      {asked === "skip" ? <Skip {...props} /> : null}
      {asked === "rewind" ? <Rewind {...props} /> : null}
    </div>
  );
}

interface AskProps {
  readonly consumer: Consumer;
  readonly isWhole: boolean;
  readonly onClose: () => void;
}

const pathOf = (name: string, act: string): string => `/v1/consumers/${part(name)}/${act}`;

function Pause({ consumer: { name }, isWhole, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  return (
    <Confirm
      title={`Pause ${name}?`}
      verb="Pause"
      reason="optional"
      onConfirm={(reason) =>
        act(() => api.post(pathOf(name, "pause"), reason ? { reason } : {}), `${name} is paused.`)
      }
      onClose={onClose}
    >
      <p>
        {isWhole ? "Each of its partitions" : "It"} stops after its batch in flight, and falls
        behind until somebody resumes it.
      </p>
    </Confirm>
  );
}

function Resume({ consumer: { name, state, poison }, isWhole, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  return (
    <Confirm
      title={`Resume ${name}?`}
      verb="Resume"
      reason="optional"
      onConfirm={(reason) =>
        act(() => api.post(pathOf(name, "resume"), reason ? { reason } : {}), `${name} goes on.`)
      }
      onClose={onClose}
    >
      <p>{whatGoesOn(isWhole, state, poison?.position)}</p>
    </Confirm>
  );
}

function whatGoesOn(isWhole: boolean, state: Consumer["state"], position = "0"): string {
  if (isWhole) {
    return (
      "All of its partitions that were stopped go on where they are. One whose handler was not " +
      "fixed will stop at its event again. Parked events are replayed in order first."
    );
  }
  return state === "quarantined"
    ? `It tries position ${formatCount(position)} again. Unless its handler was fixed, it will ` +
        "stop there again."
    : "It goes on where it is. Events that were parked are replayed in order first.";
}

function Skip({ consumer: { name, poison }, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  const position = poison?.position;
  return (
    <Confirm
      title={`Skip the event at position ${formatCount(position ?? "0")}?`}
      verb="Skip it for ever"
      isDangerous
      reason="required"
      onConfirm={(reason) =>
        act(() => api.post(pathOf(name, "skip"), { reason, position }), `${name} passed it.`)
      }
      onClose={onClose}
    >
      <p>
        {name} will never handle it: what it would have made of the event is missing, until it is
        rewound before it. The reason is kept with the skip.
      </p>
    </Confirm>
  );
}

function Rewind({ consumer: { name, checkpoint }, isWhole, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  const [to, setTo] = useState("");
  const rewind = async (reason: string | undefined): Promise<void> => {
    if (!/^\d{1,18}$/.test(to.trim())) throw new Error("A position is a whole number.");
    await api.post(pathOf(name, "rewind"), { to: to.trim(), reason });
  };
  return (
    <Confirm
      title={`Rewind ${name}?`}
      verb="Rewind"
      isDangerous
      reason="required"
      onConfirm={(reason) => act(() => rewind(reason), `${name} was rewound.`)}
      onClose={onClose}
    >
      <p>
        Every event above that position is handled again. Effects that are not written as “insert or
        update” happen twice.{" "}
        {isWhole ? "All of its partitions are rewound; the last of them" : "It"} is at{" "}
        {formatCount(checkpoint)} now; 0 is before the first event.
      </p>
      <TextField
        label="To position"
        inputMode="numeric"
        value={to}
        onChange={(event) => setTo(event.target.value)}
      />
    </Confirm>
  );
}
