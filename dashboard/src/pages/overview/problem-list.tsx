import { Link } from "wouter";
import type { ClusterStatus } from "../../api/types.ts";
import { plural } from "../../format.ts";
import { type ProblemNote, problemsOf } from "./problems.ts";

const SHOWN_MAX = 12;

/** What is wrong, in words, with the next step. */
export function ProblemList({ status }: { status: ClusterStatus | undefined }) {
  if (status === undefined) return <p className="text-muted">Looking at the cluster…</p>;
  const problems = problemsOf(status);
  return (
    <section aria-label="Problems">
      {/* Their texts change with every look, which nobody wants to have read out. */}
      <p role="status" className="sr-only">
        {plural(problems.length, "problem")}
      </p>
      {problems.length === 0 ? (
        <p className="rounded-lg border border-line bg-good-soft px-4 py-2.5 text-good">
          Nothing is wrong.
        </p>
      ) : (
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
