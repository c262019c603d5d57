import { useState } from "react";
import { part } from "../../api/http.ts";
import type { Comparison, Rebuild } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Button } from "../../ui/button.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { CheckField, TextField } from "../../ui/field.tsx";

type Move = "pause" | "resume" | "swap" | "rollback" | "cancel" | "forget";
type Asked = Move | "start" | "compare";

export interface RebuildActionsProps {
  readonly name: string;
  readonly rebuild: Rebuild | undefined;
  readonly onCompared: (comparison: Comparison) => void;
}

interface Words {
  readonly button: string;
  readonly verb: string;
  readonly title: (name: string) => string;
  readonly what: string;
  readonly done: string;
  readonly isDangerous?: true;
}

const MOVES: Readonly<Record<Move, Words>> = {
  pause: {
    button: "Pause",
    verb: "Pause",
    title: (name) => `Pause the rebuild of ${name}?`,
    what: "It stops after its batches in flight. The projection goes on.",
    done: "is paused",
  },
  resume: {
    button: "Resume",
    verb: "Resume",
    title: (name) => `Resume the rebuild of ${name}?`,
    what: "It goes on where it is. Unless its handler was fixed, it will stop there again.",
    done: "goes on",
  },
  swap: {
    button: "Swap",
    verb: "Swap the tables",
    title: (name) => `Swap in the rebuilt tables of ${name}?`,
    what:
      "The rebuilt tables take the names of the live ones in one transaction, for all who read " +
      "them. Those from before are kept until you drop them, so you can roll back.",
    done: "is swapped in",
    isDangerous: true,
  },
  rollback: {
    button: "Roll back",
    verb: "Roll back",
    title: (name) => `Put the tables from before the swap of ${name} back?`,
    what:
      "They come back with the position that they had then, and the consumer goes on from there: " +
      "events since the swap are handled again, into them.",
    done: "is rolled back",
    isDangerous: true,
  },
  cancel: {
    button: "Cancel",
    verb: "Drop the rebuilt tables",
    title: (name) => `Cancel the rebuild of ${name}?`,
    what: "The rebuilt tables are dropped. The live ones stay as they are.",
    done: "is cancelled",
    isDangerous: true,
  },
  forget: {
    button: "Drop the old tables",
    verb: "Drop them for good",
    title: (name) => `Drop the tables from before the swap of ${name}?`,
    what: "There is no way back then.",
    done: "is finished",
    isDangerous: true,
  },
};

const pathOf = (name: string): string => `/v1/consumers/${part(name)}/rebuild`;

function movesOf({ state, progress }: Rebuild): readonly Move[] {
  if (state === "swapped") return ["rollback", "forget"];
  if (state === "rolled_back") return ["cancel"];
  return [progress?.stopped === undefined ? "pause" : "resume", "swap", "cancel"];
}

/** What may be done to the rebuild as it is now, each after asking. */
export function RebuildActions({ name, rebuild, onCompared }: RebuildActionsProps) {
  const { may } = useSession();
  const [asked, setAsked] = useState<Asked>();
  const close = (): void => setAsked(undefined);
  if (!may("cluster.change")) return null;
  return (
    <div className="flex flex-wrap gap-2">
      {rebuild === undefined ? <Button onClick={() => setAsked("start")}>Rebuild</Button> : null}
      {rebuild?.state === "building" ? (
        <Button onClick={() => setAsked("compare")}>Compare</Button>
      ) : null}
      {(rebuild === undefined ? [] : movesOf(rebuild)).map((move) => (
        <Button
          key={move}
          kind={move === "swap" ? "primary" : MOVES[move].isDangerous ? "danger" : "plain"}
          aria-label={`${MOVES[move].button}: rebuild`}
          onClick={() => setAsked(move)}
        >
          {MOVES[move].button}
        </Button>
      ))}
      {asked === "start" ? <Start name={name} onClose={close} /> : null}
      {asked === "compare" ? <Compare name={name} onCompared={onCompared} onClose={close} /> : null}
      {asked === undefined || asked === "start" || asked === "compare" ? null : (
        <AskMove name={name} move={asked} onClose={close} />
      )}
    </div>
  );
}

interface AskProps {
  readonly name: string;
  readonly onClose: () => void;
}

function AskMove({ name, move, onClose }: AskProps & { readonly move: Move }) {
  const { api } = useSession();
  const act = useAct();
  const [isForced, setForced] = useState(false);
  const { verb, title, what, done, isDangerous = false } = MOVES[move];
  const body = move === "swap" && isForced ? { force: true } : undefined;
  return (
    <Confirm
      title={title(name)}
      verb={verb}
      isDangerous={isDangerous}
      onConfirm={() =>
        act(() => api.post(`${pathOf(name)}/${move}`, body), `The rebuild of ${name} ${done}.`)
      }
      onClose={onClose}
    >
      <p>{what}</p>
      {move === "swap" ? (
        <CheckField
          label="Also if every rebuilt table is empty and a live one is not"
          checked={isForced}
          onChange={(event) => setForced(event.target.checked)}
        />
      ) : null}
    </Confirm>
  );
}

function Start({ name, onClose }: AskProps) {
  const { api } = useSession();
  const act = useAct();
  const [partitions, setPartitions] = useState("");
  const start = async (reason: string | undefined): Promise<void> => {
    const text = partitions.trim();
    if (text !== "" && !/^[1-9]\d{0,3}$/.test(text)) throw new Error("Partitions: a whole number.");
    await api.post(pathOf(name), {
      ...(reason === undefined ? {} : { reason }),
      ...(text === "" ? {} : { partitions: Number(text) }),
    });
  };
  return (
    <Confirm
      title={`Rebuild ${name}?`}
      verb="Start the rebuild"
      reason="optional"
      onConfirm={(reason) => act(() => start(reason), `The rebuild of ${name} has started.`)}
      onClose={onClose}
    >
      <p>
        Workers handle the whole log again into empty copies of its tables, with side effects off.
        The live tables go on. Nothing changes for readers before you swap.
      </p>
      <TextField
        label="Partitions; empty for as many as it has"
        inputMode="numeric"
        value={partitions}
        onChange={(event) => setPartitions(event.target.value)}
        hint="More of them are faster on several workers, but give up order between streams."
      />
    </Confirm>
  );
}

function Compare({
  name,
  onCompared,
  onClose,
}: AskProps & Pick<RebuildActionsProps, "onCompared">) {
  const { api } = useSession();
  const act = useAct();
  const [ignored, setIgnored] = useState("");
  const compare = async (): Promise<void> => {
    const ignore = ignored.split(/[\s,]+/).filter((one) => one !== "");
    onCompared(await api.post(`${pathOf(name)}/compare`, ignore.length === 0 ? {} : { ignore }));
  };
  return (
    <Confirm
      title={`Compare the rebuild of ${name} with its live tables?`}
      verb="Compare"
      onConfirm={() => act(compare, "Both sides are compared.")}
      onClose={onClose}
    >
      <p>
        Both sides are held at one position for a moment, and compared row by row. Of tables with
        more than a million rows a sample is compared. Nothing is changed.
      </p>
      <TextField
        label="Columns to leave out, with blanks between"
        value={ignored}
        onChange={(event) => setIgnored(event.target.value)}
      />
    </Confirm>
  );
}
