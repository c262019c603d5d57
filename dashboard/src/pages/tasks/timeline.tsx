import type { Failure, Task } from "../../api/types.ts";
import { Badge } from "../../ui/state.tsx";
import { Instant } from "../../ui/time.tsx";
import { timelineOf } from "./timeline-steps.ts";

export function Timeline({ task, failures }: { task: Task; failures: readonly Failure[] }) {
  const steps = timelineOf(task, failures);
  return (
    <ol className="ml-1 flex flex-col border-l-2 border-line">
      {steps.map(({ at, what, tone, detail, stack }, index) => (
        <li key={`${at}-${index}`} className="relative pb-4 pl-5 last:pb-0">
          <span
            aria-hidden="true"
            className="absolute top-1.5 -left-[5px] size-2 rounded-full bg-muted"
          />
          <p className="text-xs text-muted">
            <Instant at={at} />
          </p>
          <Badge tone={tone}>{what}</Badge>
          {detail === undefined ? null : <p className="mt-1">{detail}</p>}
          {stack === undefined ? null : (
            <details className="mt-1">
              <summary className="text-xs text-muted">Stack</summary>
              <pre className="mt-1 font-mono text-xs whitespace-pre-wrap">{stack}</pre>
            </details>
          )}
        </li>
      ))}
    </ol>
  );
}
