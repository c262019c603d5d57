import type { ServerResponse } from "node:http";
import { expect } from "vitest";
import {
  type HttpJobsOptions,
  httpQueue,
  type TaskView,
  type Tidemill,
  type Worker,
  type WorkerOptions,
} from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { BRISK } from "../tasks/scene.ts";

/** Tried again at once. */
export const AT_ONCE = { kind: "fixed", baseSeconds: 0.001, maxSeconds: 0.001 } as const;

export const calls = httpQueue("calls", { maxAttempts: 3, backoff: AT_ONCE });

export interface JobScene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
}

export async function newJobScene(): Promise<JobScene> {
  const database = await testDatabase();
  return { database, mill: await database.connect() };
}

export interface CallerSettings extends HttpJobsOptions {
  readonly worker?: WorkerOptions;
}

/** Any host is this machine, and `*.hooks.test` may be called at these ports. */
export async function startCaller(
  { mill }: JobScene,
  ports: readonly number[],
  { worker = {}, ...settings }: CallerSettings = {},
): Promise<Worker> {
  const started = await mill.startWorker({
    ...BRISK,
    ...worker,
    httpJobs: { queues: [calls], ...settings, egress: egressTo(ports, settings.egress) },
  });
  onCleanup(() => started.stop());
  return started;
}

export const egressTo = (
  ports: readonly number[],
  more: HttpJobsOptions["egress"] = {},
): NonNullable<HttpJobsOptions["egress"]> => ({
  allowHttp: true,
  ports,
  allowHosts: ["hooks.test", "*.hooks.test"],
  resolve: async () => ["127.0.0.1"],
  ...more,
});

/** Looks until the task is in the state. */
export async function taskIn(
  { mill }: JobScene,
  id: string,
  state: TaskView["state"],
): Promise<TaskView> {
  return await eventually(async () => {
    const task = await mill.tasks.get(id);
    expect(task).toMatchObject({ state });
    return task;
  });
}

/** Answers with this status, and with what else is given. */
export const answering =
  (status: number, headers: Record<string, string> = {}, body = "") =>
  (response: ServerResponse): void => {
    response.writeHead(status, headers).end(body);
  };
