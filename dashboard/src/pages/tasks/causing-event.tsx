import { useQuery } from "@tanstack/react-query";
import { readEvent } from "../../api/events.ts";
import { formatCount } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Code, Panel } from "../../ui/panel.tsx";
import { Loaded } from "../../ui/query-state.tsx";

/** The event that caused a task: its position for everybody, the rest for who may read events. */
export function CausingEvent({ position }: { position: string }) {
  const { may } = useSession();
  return (
    <Panel title={`Caused by the event at position ${formatCount(position)}`}>
      {may("cluster.read") ? (
        <StoredEvent position={position} />
      ) : (
        <p className="text-muted">Events are shown to admins.</p>
      )}
    </Panel>
  );
}

function StoredEvent({ position }: { position: string }) {
  const { api } = useSession();
  const query = useQuery({
    queryKey: ["event", position],
    queryFn: async ({ signal }) => await readEvent(api, position, signal),
  });
  return (
    <Loaded query={query}>
      {(found) =>
        found === null ? (
          <p className="text-muted">It is not in the log any more.</p>
        ) : (
          <>
            <p className="mb-2">
              {found.event.type} of {found.event.stream.type} {found.event.stream.id}
            </p>
            <Code label="The event">{found.text}</Code>
          </>
        )
      }
    </Loaded>
  );
}
