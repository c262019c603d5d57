import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import type { Task } from "../../api/types.ts";
import { shortId } from "../../format.ts";
import { Button } from "../../ui/button.tsx";
import { State } from "../../ui/state.tsx";
import { Ago } from "../../ui/time.tsx";

const ROW_PX = 34;

export interface TaskListProps {
  readonly tasks: readonly Task[];
  readonly hasMore: boolean;
  /** There is more than is ever shown. */
  readonly isCut: boolean;
  /** The last page was not full: what is looked for is rare, and only who asks looks further. */
  readonly isThin: boolean;
  readonly isLoading: boolean;
  readonly onMore: () => void;
}

/** Thousands of rows, of which those in sight are there. */
export function TaskList(props: TaskListProps) {
  const { tasks, hasMore, isCut, isThin, isLoading, onMore } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: tasks.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const items = rows.getVirtualItems();
  const lastIndex = items.at(-1)?.index ?? 0;
  const isAtEnd = lastIndex >= tasks.length - 1;
  useEffect(() => {
    if (isAtEnd && hasMore && !isThin && !isLoading) onMore();
  }, [isAtEnd, hasMore, isThin, isLoading, onMore]);
  return (
    <>
      <div
        ref={scroller}
        role="region"
        aria-label="Tasks"
        tabIndex={0}
        className="max-h-[calc(100dvh-17rem)] min-h-64 overflow-auto"
      >
        <div role="table" aria-rowcount={tasks.length + 1} className="min-w-[56rem]">
          <Head />
          <div role="rowgroup" className="relative" style={{ height: rows.getTotalSize() }}>
            {items.map(({ index, start }) => {
              const task = tasks[index];
              return task === undefined ? null : (
                <Row key={task.id} task={task} index={index} start={start} />
              );
            })}
          </div>
        </div>
      </div>
      <div className="flex items-center justify-between gap-2 px-4 py-2 text-xs text-muted">
        <span>
          {tasks.length.toLocaleString("en")} shown
          {isCut ? "; the list ends here, filter it to see older ones" : ""}
        </span>
        {hasMore ? (
          <Button kind="quiet" disabled={isLoading} onClick={onMore}>
            {isLoading ? "Loading…" : isThin ? "Look further back" : "Load more"}
          </Button>
        ) : null}
      </div>
    </>
  );
}

const HEADS = ["Task", "State", "Queue", "Key", "Attempt", "Enqueued", "Worker, or how it ended"];

function Head() {
  return (
    <div role="rowgroup" className="sticky top-0 z-1 bg-panel">
      <div
        role="row"
        aria-rowindex={1}
        className="task-row border-b border-line px-4 py-1.5 text-xs font-medium text-muted"
      >
        {HEADS.map((head) => (
          <span key={head} role="columnheader">
            {head}
          </span>
        ))}
      </div>
    </div>
  );
}

function Row({ task, index, start }: { task: Task; index: number; start: number }) {
  const { id, state, queue, partitionKey, attempt, maxAttempts, createdAt, reason } = task;
  const end = reason ?? (task.workerId === undefined ? "" : `on ${shortId(task.workerId)}`);
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      className="task-row absolute inset-x-0 items-center border-b border-line px-4 hover:bg-sunken"
      style={{ height: ROW_PX, transform: `translateY(${start}px)` }}
    >
      <span role="cell">
        <Link href={`/tasks/${id}`} className="font-mono text-accent underline">
          {id}
        </Link>
      </span>
      <span role="cell">
        <State name={state} />
      </span>
      <span role="cell" className="truncate" title={queue}>
        {queue}
      </span>
      <span role="cell" className="truncate text-muted" title={partitionKey}>
        {partitionKey ?? "–"}
      </span>
      <span role="cell">
        {attempt} of {maxAttempts}
      </span>
      <span role="cell" className="text-muted">
        <Ago at={createdAt} />
      </span>
      <span role="cell" className="truncate text-muted" title={end}>
        {end}
      </span>
    </div>
  );
}
