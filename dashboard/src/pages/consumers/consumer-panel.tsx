import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { readEvent } from "../../api/events.ts";
import type { Consumer, Poison } from "../../api/types.ts";
import { formatCount, formatSeconds, plural } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Code, Facts, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { State } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";
import { ConsumerActions } from "./consumer-actions.tsx";
import { describeParked } from "./parked-text.ts";

export interface ConsumerPanelProps {
  readonly consumer: Consumer;
  /** Of a whole consumer that is split: how many there are. */
  readonly partitions?: number;
  readonly children?: ReactNode;
}

/** A consumer, or one partition: where it is, what stops it, and what may be done. */
export function ConsumerPanel({ consumer, partitions, children }: ConsumerPanelProps) {
  const isWhole = partitions !== undefined;
  const { name, state, checkpoint, lag, lagSeconds, workerId, reason, poison } = consumer;
  return (
    <Panel title={name} aside={<ConsumerActions consumer={consumer} isWhole={isWhole} />}>
      <Facts
        items={[
          ["State", <State key="state" name={state} />],
          ...(reason === undefined ? [] : [["Reason", reason] as const]),
          ...(isWhole ? [["Partitions", String(partitions)] as const] : []),
          [isWhole ? "Lowest position" : "Position", formatCount(checkpoint)],
          [
            isWhole ? "Behind, all together" : "Behind",
            lagSeconds === undefined
              ? plural(Number(lag), "event")
              : `${plural(Number(lag), "event")}, the first ${formatSeconds(lagSeconds)} old`,
          ],
          ...(isWhole ? [] : [["Worker", workerId ?? "none"] as const]),
          ...(consumer.parkedEvents === 0 ? [] : [["Parked", describeParked(consumer)] as const]),
        ]}
      />
      {poison === undefined ? null : <PoisonStory poison={poison} />}
      {children}
    </Panel>
  );
}

/** The event on which it stopped, and why. */
function PoisonStory({ poison }: { poison: Poison }) {
  const { position, eventId, error, stack, failures, since } = poison;
  return (
    <div className="mt-4 flex flex-col gap-3 border-t border-line pt-4">
      <h3 className="font-semibold text-bad">
        It stopped at position {formatCount(position)} after {plural(failures, "failure")}
        {since === undefined ? "" : ", "}
        {since === undefined ? null : <Ago at={since} />}
      </h3>
      <p>{error ?? "No error was recorded."}</p>
      {stack === undefined ? null : <Code label="Stack">{stack}</Code>}
      <FailingEvent position={position} eventId={eventId} />
    </div>
  );
}

interface FailingEventProps {
  readonly position: string;
  readonly eventId: string | undefined;
}

function FailingEvent({ position, eventId }: FailingEventProps) {
  const { api } = useSession();
  const query = useQuery({
    queryKey: ["event", position],
    queryFn: async ({ signal }) => await readEvent(api, position, signal),
  });
  return (
    <Loaded query={query}>
      {(found) =>
        found === null ? (
          <p className="text-muted">Event {eventId ?? "unknown"}</p>
        ) : (
          <Code label="The event">{found.text}</Code>
        )
      }
    </Loaded>
  );
}
