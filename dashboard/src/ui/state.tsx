const TONES = {
  good: "bg-good-soft text-good",
  warn: "bg-warn-soft text-warn",
  bad: "bg-bad-soft text-bad",
  busy: "bg-accent-soft text-accent",
  calm: "bg-sunken text-muted",
} as const;
export type Tone = keyof typeof TONES;

const TONE_OF: Readonly<Record<string, Tone>> = {
  active: "good",
  completed: "good",
  running: "busy",
  pending: "calm",
  scheduled: "calm",
  stopped: "calm",
  cancelled: "calm",
  draining: "warn",
  paused: "warn",
  unassigned: "warn",
  failed: "bad",
  dead: "bad",
  quarantined: "bad",
  parked: "bad",
  replaying: "busy",
};

export function Badge({ tone, children }: { tone: Tone; children: string }) {
  return (
    <span className={`inline-block rounded px-1.5 py-px text-xs font-medium ${TONES[tone]}`}>
      {children}
    </span>
  );
}

/** A state by its name; the colour only helps. */
export const State = ({ name }: { name: string }) => (
  <Badge tone={TONE_OF[name] ?? "calm"}>{name}</Badge>
);
