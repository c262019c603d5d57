import { type ReactNode, useEffect, useRef } from "react";

export interface PageProps {
  readonly title: string;
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

let isFirst = true;

/** One place of the dashboard. Who comes there by keyboard or screen reader is told so. */
export function Page({ title, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Tidemill`;
    if (!isFirst) heading.current?.focus({ preventScroll: true });
    isFirst = false;
  }, [title]);
  return (
    <div className="mx-auto flex w-full max-w-[160rem] min-w-0 flex-col gap-4">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <h1 ref={heading} tabIndex={-1} className="text-xl font-semibold">
          {title}
        </h1>
        {actions}
      </div>
      {children}
    </div>
  );
}
