import { type ReactNode, useId } from "react";

export interface PanelProps {
  readonly title: string;
  readonly aside?: ReactNode;
  readonly children: ReactNode;
  /** Whether what is inside goes up to its edges. */
  readonly flush?: boolean;
  readonly className?: string;
}

export function Panel({ title, aside, children, flush = false, className = "" }: PanelProps) {
  const id = useId();
  return (
    <section
      aria-labelledby={id}
      className={`min-w-0 rounded-lg border border-line bg-panel ${className}`}
    >
      <div className="flex flex-wrap items-center justify-between gap-2 px-4 pt-3 pb-2">
        <h2 id={id} className="text-sm font-semibold">
          {title}
        </h2>
        {aside}
      </div>
      <div className={flush ? "" : "px-4 pb-4"}>{children}</div>
    </section>
  );
}

/** Wide things scroll by themselves, so that the page does not. */
export function Scroller({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div role="region" aria-label={`${label}, table`} tabIndex={0} className="overflow-x-auto">
      {children}
    </div>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="px-4 py-6 text-center text-muted">{children}</p>;
}

/** A name and what it has, for many of them. */
export function Facts({ items }: { items: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className="grid grid-cols-[max-content_1fr] gap-x-4 gap-y-1.5">
      {items.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-muted">{name}</dt>
          <dd className="min-w-0">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Code({ label, children }: { label: string; children: string }) {
  return (
    <pre
      role="region"
      aria-label={`${label}, text`}
      tabIndex={0}
      className="max-h-96 overflow-auto rounded-md bg-sunken p-3 text-xs whitespace-pre-wrap"
    >
      {children}
    </pre>
  );
}
