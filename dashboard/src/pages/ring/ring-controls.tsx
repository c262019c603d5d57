import { useId } from "react";
import type { Ring } from "../../api/types.ts";
import { shortId } from "../../format.ts";
import { Select, TextField } from "../../ui/field.tsx";
import { VIRTUAL_NODES } from "./ring-math.ts";

/** What a person wants to know of a ring. */
export interface Asked {
  /** Its name; "" for the first. */
  readonly ring: string;
  readonly key: string;
  /** "join", or the worker that leaves, or "". */
  readonly supposed: string;
  readonly virtualNodes: number;
}

export const NEWCOMER = "a new worker";
export const nameOf = ({ keySpace, tenant }: Ring): string => `${keySpace} of ${tenant}`;

const NODES_MAX = 500;

export interface RingControlsProps {
  readonly rings: readonly Ring[];
  readonly ring: Ring;
  readonly asked: Asked;
  readonly onAsk: (part: Partial<Asked>) => void;
}

export function RingControls({ rings, ring, asked, onAsk }: RingControlsProps) {
  const { key, supposed, virtualNodes } = asked;
  return (
    <div className="grid items-end gap-3 sm:grid-cols-2 lg:grid-cols-4">
      <Select
        label="Key space"
        options={rings.map((one) => [nameOf(one), nameOf(one)])}
        value={nameOf(ring)}
        onChange={(event) => onAsk({ ring: event.target.value })}
      />
      <TextField
        label="Whose is this key?"
        value={key}
        onChange={(event) => onAsk({ key: event.target.value })}
      />
      <Select
        label="What would move if"
        options={[
          ["", "nothing changes"],
          ["join", "a worker joins"],
          ...ring.owners.map(({ worker }) => [worker, `${shortId(worker)} leaves`] as const),
        ]}
        value={supposed}
        onChange={(event) => onAsk({ supposed: event.target.value })}
      />
      <NodesSlider value={virtualNodes} onChange={(count) => onAsk({ virtualNodes: count })} />
    </div>
  );
}

interface NodesSliderProps {
  readonly value: number;
  readonly onChange: (count: number) => void;
}

/** Only to look: the leader uses 150. */
function NodesSlider({ value, onChange }: NodesSliderProps) {
  const id = useId();
  const isReal = value === VIRTUAL_NODES;
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-muted">
        Virtual nodes per worker: {value}
        {isReal ? ", as the leader has it" : `, to try; the leader has ${VIRTUAL_NODES}`}
      </label>
      <input
        id={id}
        type="range"
        min={1}
        max={NODES_MAX}
        value={value}
        aria-valuetext={`${value} virtual nodes`}
        onChange={(event) => onChange(Number(event.target.value))}
        className="h-8 w-full accent-accent"
      />
    </div>
  );
}
