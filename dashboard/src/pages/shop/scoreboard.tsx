import { formatCount } from "../../format.ts";
import { Panel } from "../../ui/panel.tsx";
import type { Shop } from "./use-shop.ts";

/** What must stay at zero, whatever is done to the workers. */
export function Scoreboard({ shop }: { shop: Shop }) {
  const { score, promised, refused } = shop;
  const figures = [
    ["lost", score.lost],
    ["doubled", score.doubled],
    ["out of order", score.outOfOrder],
  ] as const;
  const isClean = figures.every(([, count]) => count === 0);
  return (
    <Panel title="Scoreboard">
      <p
        role="status"
        className={`flex flex-wrap items-baseline gap-x-3 text-2xl font-semibold ${
          isClean ? "text-good" : "text-bad"
        }`}
      >
        {figures.map(([name, count], index) => (
          <span key={name} className="whitespace-nowrap">
            {name} {formatCount(count)}
            {index + 1 < figures.length ? <span className="text-muted"> ·</span> : null}
          </span>
        ))}
      </p>
      <dl className="mt-3 flex flex-wrap gap-x-8 gap-y-2">
        <Figure name="Orders" value={formatCount(promised.orders)} />
        <Figure name="Events handled by all" value={ofAll(score.eventsDone, promised.events)} />
        <Figure name="Tasks done" value={ofAll(score.tasksDone, promised.tasks)} />
        <Figure name="Tasks under way" value={formatCount(score.tasksOpen)} />
        <Figure name="Late completions refused" value={formatCount(refused)} />
      </dl>
      {isClean ? null : (
        <ul className="mt-3 list-disc pl-5 text-bad">
          {score.findings.map((finding) => (
            <li key={finding}>{finding}</li>
          ))}
        </ul>
      )}
      <p className="mt-3 max-w-[80ch] text-xs text-muted">
        Every second: what the shop was promised beside what the tables say, by the rules with which
        chaos runs are judged. An effect counts when its transaction has committed.
      </p>
    </Panel>
  );
}

const ofAll = (done: number, all: number): string => `${formatCount(done)} of ${formatCount(all)}`;

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt className="text-xs text-muted">{name}</dt>
      <dd className="text-lg font-medium">{value}</dd>
    </div>
  );
}
