import { type ReactNode, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { useFollowActs } from "../live/hooks.ts";
import { useSession } from "../session/session.tsx";
import { Button } from "./button.tsx";
import { ConnectionState } from "./connection-state.tsx";
import { Logo } from "./logo.tsx";
import { chooseTheme, THEMES, type Theme, useTheme } from "./theme.ts";

interface Place {
  readonly href: string;
  readonly text: string;
  /** What the token must allow. */
  readonly act: string;
  /** The server has to say that it has it. */
  readonly page?: string;
}

const PLACES: readonly Place[] = [
  { href: "/", text: "Overview", act: "feed.read" },
  { href: "/shop", text: "Shop", act: "cluster.read", page: "shop" },
  { href: "/queues", text: "Queues", act: "queue.read" },
  { href: "/tasks", text: "Tasks", act: "task.read" },
  { href: "/dead-letters", text: "Dead letters", act: "dead.read" },
  { href: "/consumers", text: "Consumers", act: "cluster.read" },
  { href: "/ring", text: "Ring", act: "cluster.read" },
  { href: "/schedules", text: "Schedules", act: "schedule.read" },
  { href: "/tenants", text: "Tenants", act: "cluster.read" },
  { href: "/audit", text: "Audit", act: "cluster.read" },
];

/** Where there is little room, the menu lies over the page; else it stands beside it. */
const DRAWER = "absolute z-10 w-full border-b border-line bg-panel p-2";
const COLUMN = "lg:static lg:block lg:w-44 lg:shrink-0 lg:border-r lg:border-b-0";
const HEADER =
  "flex flex-wrap items-center gap-x-3 gap-y-2 border-b border-line bg-panel px-3 py-2 sm:px-4";

/** What is around every page. */
export function Frame({ children }: { children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  const [location] = useLocation();
  useFollowActs();
  // Whoever went somewhere has chosen.
  useEffect(() => setOpen(false), [location]);
  return (
    <div className="flex min-h-dvh flex-col">
      <a
        href="#content"
        className="sr-only focus:not-sr-only focus:absolute focus:z-30 focus:bg-panel focus:p-3"
      >
        Skip to the content
      </a>
      <TopBar isOpen={isOpen} onToggle={() => setOpen(!isOpen)} />
      <div className="flex min-w-0 grow">
        <nav
          id="menu"
          aria-label="Pages"
          className={`${isOpen ? "block" : "hidden"} ${DRAWER} ${COLUMN}`}
        >
          <Menu location={location} />
        </nav>
        <main id="content" className="min-w-0 grow p-3 sm:p-5">
          {children}
        </main>
      </div>
    </div>
  );
}

function TopBar({ isOpen, onToggle }: { isOpen: boolean; onToggle: () => void }) {
  const { me, leave } = useSession();
  return (
    <header className={HEADER}>
      <Button
        kind="quiet"
        className="lg:hidden"
        aria-expanded={isOpen}
        aria-controls="menu"
        onClick={onToggle}
      >
        Menu
      </Button>
      <Link href="/" className="flex items-center gap-2 font-semibold">
        <Logo /> Tidemill
      </Link>
      <ConnectionState />
      <div className="ml-auto flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="text-xs text-muted">
          {me.tenant} · {me.subject} · {describeScopes(me.scopes)}
        </span>
        <ThemeChoice />
        <Button kind="quiet" onClick={leave}>
          Sign out
        </Button>
      </div>
    </header>
  );
}

/** What the token is for. One with more than "read" may act, on tasks of its own tenant. */
function describeScopes(scopes: readonly string[]): string {
  if (scopes.includes("admin")) return "admin";
  return scopes.length === 1 ? `${scopes[0]} only` : scopes.toSorted().join(", ");
}

const NAMES: Readonly<Record<Theme, string>> = { system: "Auto", light: "Light", dark: "Dark" };

function ThemeChoice() {
  const theme = useTheme();
  return (
    <select
      aria-label="Colour theme"
      value={theme}
      onChange={(event) => chooseTheme(event.target.value as Theme)}
      className="min-h-8 rounded-md border border-edge bg-panel px-1.5 text-sm text-muted"
    >
      {THEMES.map((one) => (
        <option key={one} value={one}>
          {NAMES[one]}
        </option>
      ))}
    </select>
  );
}

function Menu({ location }: { location: string }) {
  const { may, me } = useSession();
  const isThere = (page: string): boolean => me.pages?.includes(page) === true;
  const places = PLACES.filter(
    ({ act, page }) => may(act) && (page === undefined || isThere(page)),
  );
  return (
    <div className="flex h-full flex-col gap-4">
      <ul className="flex flex-col gap-0.5">
        {places.map(({ href, text }) => {
          const isHere = href === "/" ? location === "/" : location.startsWith(href);
          const look = isHere ? "bg-accent-soft text-accent" : "text-ink hover:bg-sunken";
          return (
            <li key={href}>
              <Link
                href={href}
                aria-current={isHere ? "page" : undefined}
                className={`block rounded-md px-3 py-1.5 font-medium ${look}`}
              >
                {text}
              </Link>
            </li>
          );
        })}
      </ul>
      <p className="px-3 text-xs text-muted">
        Version {me.version}
        <br />
        <a href="/docs" className="underline">
          HTTP API
        </a>
      </p>
    </div>
  );
}
