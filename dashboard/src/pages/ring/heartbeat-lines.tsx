import { formatSeconds, shortId } from "../../format.ts";
import { useNow } from "../../live/hooks.ts";
import type { LiveState } from "../../live/live-state.ts";
import { Empty, Panel } from "../../ui/panel.tsx";
import { State } from "../../ui/state.tsx";
import { beatsOf, longestSilence } from "./beats.ts";

const SECONDS = 120;
const LATE_SECONDS = 7;

const ROW = "grid grid-cols-[9rem_1fr] items-center gap-x-3 sm:grid-cols-[11rem_1fr_8rem]";

const toneOf = (silence: number): string => (silence > LATE_SECONDS ? "text-warn" : "text-muted");

/** When each worker was heard within the last two minutes, drawn to scale. */
export function HeartbeatLines({ live: { status, moments } }: { live: LiveState }) {
  const now = useNow();
  const shown = status?.workers.filter(({ status: state }) => state !== "stopped") ?? [];
  const since = now - SECONDS;
  return (
    <Panel
      title="Heartbeats of the last two minutes"
      aside={<p className="text-xs text-muted">now is on the right</p>}
    >
      {shown.length === 0 ? <Empty>No worker is running.</Empty> : null}
      <ul className="flex flex-col gap-2">
        {shown.map(({ id, status: state }) => {
          const beats = beatsOf(moments, id).filter((at) => at >= since);
          const silence = longestSilence(beats, now);
          return (
            <li key={id} className={ROW}>
              <span className="flex items-center gap-2">
                <code title={id}>{shortId(id)}</code> <State name={state} />
              </span>
              <svg viewBox={`0 0 ${SECONDS} 10`} preserveAspectRatio="none" className="h-5 w-full">
                <title>{`${beats.length} heartbeats`}</title>
                <line x1="0" y1="5" x2={SECONDS} y2="5" stroke="var(--line)" strokeWidth="1" />
                {beats.map((at) => (
                  <line
                    key={at}
                    x1={at - since}
                    x2={at - since}
                    y1="1"
                    y2="9"
                    stroke="var(--series-1)"
                    strokeWidth="2"
                    vectorEffect="non-scaling-stroke"
                  />
                ))}
              </svg>
              <span className={`hidden text-xs sm:block ${toneOf(silence)}`}>
                {beats.length === 0 ? "not heard" : `silent for ${formatSeconds(silence)} at most`}
              </span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
