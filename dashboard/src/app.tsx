import { lazy, type ReactNode, Suspense } from "react";
import { Route, Switch, useLocation } from "wouter";
import { AuditPage } from "./pages/audit/audit-page.tsx";
import { ConsumersPage } from "./pages/consumers/consumers-page.tsx";
import { DeadPage } from "./pages/dead/dead-page.tsx";
import { OverviewPage } from "./pages/overview/overview-page.tsx";
import { QueuesPage } from "./pages/queues/queues-page.tsx";
import { RingPage } from "./pages/ring/ring-page.tsx";
import { SchedulesPage } from "./pages/schedules/schedules-page.tsx";
import { TaskPage } from "./pages/tasks/task-page.tsx";
import { TasksPage } from "./pages/tasks/tasks-page.tsx";
import { TenantsPage } from "./pages/tenants/tenants-page.tsx";
import { useSession } from "./session/session.tsx";
import { ErrorBoundary } from "./ui/error-boundary.tsx";
import { Frame } from "./ui/frame.tsx";
import { Page } from "./ui/page.tsx";

/** Only `tidemill dev` has it, so nobody else loads it. */
const ShopPage = lazy(async () => {
  const { ShopPage: page } = await import("./pages/shop/shop-page.tsx");
  return { default: page };
});

/** Where everything is. A place that the token does not open is not there. */
export function App() {
  const [location] = useLocation();
  return (
    <Frame>
      {/* Anew with each place: what cannot be drawn is left by going elsewhere. */}
      <ErrorBoundary key={location}>
        <Switch>
          <Route path="/">
            <OverviewPage />
          </Route>
          <Route path="/queues">
            <For act="queue.read">
              <QueuesPage />
            </For>
          </Route>
          <Route path="/tasks">
            <TasksPage />
          </Route>
          <Route path="/tasks/:id">{({ id }) => <TaskPage key={id} id={id} />}</Route>
          <Route path="/dead-letters">
            <For act="dead.read">
              <DeadPage />
            </For>
          </Route>
          <Route path="/consumers">
            <For act="cluster.read">
              <ConsumersPage />
            </For>
          </Route>
          <Route path="/ring">
            <For act="cluster.read">
              <RingPage />
            </For>
          </Route>
          <Route path="/schedules">
            <For act="schedule.read">
              <SchedulesPage />
            </For>
          </Route>
          <Route path="/audit">
            <For act="cluster.read">
              <AuditPage />
            </For>
          </Route>
          <Route path="/shop">
            <For act="cluster.read" page="shop">
              <Suspense fallback={<p className="text-muted">Loading…</p>}>
                <ShopPage />
              </Suspense>
            </For>
          </Route>
          <Route path="/tenants">
            <For act="cluster.read">
              <TenantsPage />
            </For>
          </Route>
          <Route>
            <NotThere />
          </Route>
        </Switch>
      </ErrorBoundary>
    </Frame>
  );
}

interface ForProps {
  readonly act: string;
  /** One that only some servers have. */
  readonly page?: string;
  readonly children: ReactNode;
}

function For({ act, page, children }: ForProps) {
  const { may, me } = useSession();
  const isThere = page === undefined || me.pages?.includes(page) === true;
  return may(act) && isThere ? children : <NotThere />;
}

function NotThere() {
  return (
    <Page title="There is nothing here">
      <p className="text-muted">
        The address is wrong, or this token does not open it. The pages are in the menu.
      </p>
    </Page>
  );
}
