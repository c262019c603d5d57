import type { Service, Stage } from "../base/supervisor.ts";
import type { Election } from "../cluster/election.ts";
import type { Leader } from "../cluster/leader.ts";
import type { Registry } from "../cluster/registry.ts";
import type { Dispatcher } from "../consumers/dispatcher.ts";
import type { LogReader } from "../consumers/reader.ts";
import type { ConsumerRunner } from "../consumers/runner.ts";
import type { Database } from "../db/database.ts";
import type { Listener } from "../db/listener.ts";
import type { HttpJobs } from "../delivery/jobs/http-jobs.ts";
import type { HttpQueueWatch } from "../delivery/jobs/http-queue-watch.ts";
import type { NoticeSender } from "../delivery/notices/notice-sender.ts";
import type { DeliverySender } from "../delivery/sender.ts";
import type { Scheduler } from "../schedules/scheduler.ts";
import type { Housekeeper } from "../tasks/housekeeper.ts";
import type { TaskRunner } from "../tasks/runner.ts";

export interface Pools {
  readonly control: Database;
  readonly batches: Database;
  /** Of a worker with projections that can be rebuilt. */
  readonly rebuilds?: Database | undefined;
  /** Of a worker that delivers webhooks, or makes calls of tasks. */
  readonly deliveries?: Database | undefined;
}

/**
 * In the order in which they start; they stop in reverse. Whatever takes in work stops at once and
 * drains together: else one of them would go on fetching while another drains.
 */
export function servicesOf(parts: Parts): Stage[] {
  const { registry, leader, housekeeper, scheduler, sender, notices } = parts;
  const { dispatcher, listener, reader, tasks, runner, httpQueues } = parts;
  const taskServices =
    tasks === undefined ? [] : [tasks.finisher, tasks.finisher.packs, tasks.renewer];
  const intake: readonly (Service | undefined)[] = [sender, notices, tasks, httpQueues, runner];
  return [
    registry,
    leader,
    ...(housekeeper === undefined ? [] : [housekeeper]),
    ...(scheduler === undefined ? [] : [scheduler]),
    dispatcher,
    ...(listener === undefined ? [] : [listener]),
    reader,
    ...taskServices,
    intake.filter((service) => service !== undefined),
  ];
}

export interface Parts {
  readonly registry: Registry;
  readonly reader: LogReader;
  readonly runner: ConsumerRunner;
  readonly election: Election;
  readonly leader: Leader;
  readonly dispatcher: Dispatcher;
  readonly listener: Listener | undefined;
  readonly tasks: TaskRunner | undefined;
  readonly housekeeper: Housekeeper | undefined;
  readonly scheduler: Scheduler | undefined;
  readonly sender: DeliverySender | undefined;
  readonly notices: NoticeSender | undefined;
  /** Closed when no task runs any more. */
  readonly jobs: HttpJobs | undefined;
  readonly httpQueues: HttpQueueWatch | undefined;
}
