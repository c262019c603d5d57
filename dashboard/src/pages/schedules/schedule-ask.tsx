import { part } from "../../api/http.ts";
import type { Schedule } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";

export type ScheduleAct = "run" | "pause" | "resume";

const ACTS: Readonly<
  Record<ScheduleAct, { verb: string; what: (one: Schedule) => string; done: string }>
> = {
  run: {
    verb: "Run now",
    what: ({ queue }) =>
      `Its task is enqueued into ${queue} once, now. Its ticks stay as they are.`,
    done: "was run",
  },
  pause: {
    verb: "Pause",
    what: () => "It fires no tick until somebody resumes it.",
    done: "is paused",
  },
  resume: {
    verb: "Resume",
    what: () => "It goes on with its next tick. Those that it missed meanwhile are not fired.",
    done: "goes on",
  },
};

export interface ScheduleAskProps {
  readonly schedule: Schedule;
  readonly act: ScheduleAct;
  readonly onClose: () => void;
}

export function ScheduleAsk({ schedule, act, onClose }: ScheduleAskProps) {
  const { api } = useSession();
  const run = useAct();
  const { name } = schedule;
  const { verb, what, done } = ACTS[act];
  const send = (): Promise<unknown> => api.post(`/v1/schedules/${part(name)}/${act}`);
  return (
    <Confirm
      title={`${verb}: ${name}?`}
      verb={verb}
      onConfirm={() => run(send, `${name} ${done}.`)}
      onClose={onClose}
    >
      <p>{what(schedule)}</p>
    </Confirm>
  );
}
