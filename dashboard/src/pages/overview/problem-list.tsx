import { Link } from "wouter";
import { plural } from "../../format.ts";
import { staleSinceMs } from "../../live/freshness.ts";
import { useNow } from "../../live/hooks.ts";
import type { LiveState } from "../../live/live-state.ts";
import { StaleNote } from "../../ui/stale-note.tsx";
import { motionOf, type ProblemNote, problemsOf } from "./problems.ts";

const SHOWN_MAX = 12;

/** What is wrong, in words, with the next step. */
export function ProblemList({ live }: { live: LiveState }) {
  const nowMs = useNow() * 1000;
  const { status } = live;
  if (status === undefined) return <p className="text-muted">Looking at the cluster…</p>;
  const problems = problemsOf(status, motionOf(live));
  const sinceMs = staleSinceMs(live, nowMs);
  return (
    <section aria-label="Problems">
      {/* Their texts change with every look, which nobody wants to have read out. */}
      <p role="status" className="sr-only">
        {plural(problems.length, "problem")}
        {sinceMs === undefined ? "" : ", not current"}
      </p>
      {sinceMs === undefined ? null : (
        <div className="mb-2">
          <StaleNote more={problems.length === 0 ? " Nothing was wrong then." : ""} />
        </div>
      )}
      {problems.length === 0 && sinceMs === undefined ? (
        <p className="rounded-lg border border-line bg-good-soft px-4 py-2.5 text-good">
          Nothing is wrong.
        </p>
      ) : null}
      {problems.length === 0 ? null : (
        <ul className="flex flex-col gap-2">
          {problems.slice(0, SHOWN_MAX).map((problem) => (
            <ProblemItem key={problem.key} problem={problem} />
          ))}
        </ul>
      )}
      {problems.length > SHOWN_MAX ? (
        <p className="mt-2 text-muted">and {problems.length - SHOWN_MAX} more</p>
      ) : null}
    </section>
  );
}

function ProblemItem({ problem }: { problem: ProblemNote }) {
  const { severity, what, next, href } = problem;
  const look = severity === "bad" ? "border-bad bg-bad-soft" : "border-warn bg-warn-soft";
  return (
    <li className={`rounded-lg border-l-4 px-4 py-2.5 ${look}`}>
      <p className={`font-medium ${severity === "bad" ? "text-bad" : "text-warn"}`}>{what}</p>
      <p className="text-ink">
        {href === undefined ? (
          next
        ) : (
          <Link href={href} className="underline">
            {next}
          </Link>
        )}
      </p>
    </li>
  );
}
