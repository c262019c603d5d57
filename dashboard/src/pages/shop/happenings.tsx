import { Empty, Panel } from "../../ui/panel.tsx";
import { Ago } from "../../ui/time.tsx";
import type { Shop } from "./use-shop.ts";

/** What was done to the shop, and what came of it; the latest first. */
export function Happenings({ shop: { happenings } }: { shop: Shop }) {
  return (
    <Panel title="What happened" flush>
      {happenings.length === 0 ? (
        <Empty>Nothing yet: press a button.</Empty>
      ) : (
        <ol
          aria-label="What happened, the latest first"
          tabIndex={0}
          className="flex max-h-80 flex-col gap-1.5 overflow-y-auto px-4 pb-4"
        >
          {happenings.map(({ atMs, text }) => (
            <li key={`${atMs} ${text}`} className="grid grid-cols-[5.5rem_1fr] gap-2">
              <span className="text-muted">
                <Ago at={new Date(atMs).toISOString()} />
              </span>
              <span>{text}</span>
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
