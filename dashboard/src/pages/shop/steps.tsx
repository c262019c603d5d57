import type { ReactNode } from "react";
import { Link } from "wouter";
import { Panel } from "../../ui/panel.tsx";
import type { Shop } from "./use-shop.ts";

interface Step {
  readonly title: string;
  readonly text: ReactNode | ((shop: Shop) => ReactNode);
}

const To = ({ href, children }: { href: string; children: string }) => (
  <Link href={href} className="text-accent underline">
    {children}
  </Link>
);

/** All that are taken in the tutorial, under the same titles and numbers. */
export const STEPS: readonly Step[] = [
  {
    title: "Start it",
    text: (
      <>
        It runs: a database, a server and worker processes. The <To href="/">overview</To> shows
        them; in a second terminal, <code>tidemill status</code> does.
      </>
    ),
  },
  {
    title: "See an order flow",
    text: (
      <>
        An order is placed, paid, and shipped or refunded: events, read by three{" "}
        <To href="/consumers">consumers</To>. Being paid causes a receipt, a{" "}
        <To href="/tasks?queue=receipts">task</To>.
      </>
    ),
  },
  {
    title: "Append an event by hand",
    text: (
      <>
        With <code>curl</code>, to an order of yours. The <To href="/consumers">consumers</To> pass
        it at once; who is wrong about its version is refused.
      </>
    ),
  },
  {
    title: "Write a projection",
    text: (
      <>
        Yours reads the log from the first event on, and is then among the{" "}
        <To href="/consumers">consumers</To>.
      </>
    ),
  },
  {
    title: "Enqueue in your transaction",
    text: (
      <>
        A row, an event and a <To href="/tasks?queue=refunds">refund</To>, all of it or nothing: a
        worker of the shop writes the refund.
      </>
    ),
  },
  {
    title: "Keys and order",
    text: (
      <>
        Receipt and refund of an order are in two <To href="/queues">queues</To> and one line: they
        share a key. The <To href="/ring">ring</To> says which worker owns it.
      </>
    ),
  },
  {
    title: "Kill a worker",
    text: "Its consumers and tasks go to the others within seconds. Add another one.",
  },
  {
    title: "Pause one past its lease",
    text: ({ leaseSeconds }) =>
      `Wait ${leaseSeconds + 5} s, then let it go on: what it completes too late is refused.`,
  },
  {
    title: "Dead letters",
    text: (
      <>
        Labels to Atlantis die after three attempts. Let the courier answer everything, and redrive
        them from the <To href="/dead-letters">desk</To>.
      </>
    ),
  },
  {
    title: "Schedules",
    text: (
      <>
        A <To href="/schedules?name=report">report</To> is made every ten seconds, each tick once.
      </>
    ),
  },
];

/** What there is to try, as in the tutorial. */
export function Steps({ shop }: { shop: Shop }) {
  return (
    <Panel title="Try">
      <ol className="flex list-decimal flex-col gap-2 pl-7">
        {STEPS.map(({ title, text }) => (
          <li key={title}>
            <p className="font-medium">{title}</p>
            <p className="text-muted">{typeof text === "function" ? text(shop) : text}</p>
          </li>
        ))}
      </ol>
      <p className="mt-3 text-xs text-muted">
        All of it, with what to type: <code>docs/tutorial</code>.
      </p>
    </Panel>
  );
}
