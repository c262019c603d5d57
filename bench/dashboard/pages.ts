/** What a page fetches before it shows something, for a token that may see everything. */
export interface PageCalls {
  readonly page: string;
  readonly calls: readonly string[];
}

/** What the calls name. */
export interface Named {
  readonly task: string;
  readonly dead: string;
  readonly consumer: string;
  readonly keySpace: string;
  readonly schedule: string;
  readonly tenant: string;
  readonly key: string;
  readonly queue: string;
}

const part = encodeURIComponent;

/** Every page, and the filters of lists, those that find nearly nothing included. */
export function pagesOf(named: Named): PageCalls[] {
  const { task, dead, consumer, keySpace, schedule, tenant, key, queue } = named;
  const ofTask = (id: string): string[] =>
    ["", "/failures", "/why"].map((end) => `/v1/tasks/${id}${end}`);
  return [
    { page: "overview", calls: ["/v1/me", "/v1/status"] },
    { page: "queues", calls: ["/v1/queues"] },
    { page: "tasks", calls: ["/v1/tasks?limit=100"] },
    {
      page: "tasks, filtered",
      calls: [
        ...["scheduled", "pending", "running", "completed", "failed", "dead", "cancelled"].map(
          (state) => `/v1/tasks?state=${state}&limit=100`,
        ),
        `/v1/tasks?queue=${part(queue)}&limit=100`,
        `/v1/tasks?partitionKey=${part(key)}&limit=100`,
        "/v1/tasks?partitionKey=nobody&limit=100",
      ],
    },
    { page: "task, ended", calls: ofTask(task) },
    { page: "task, dead", calls: ofTask(dead) },
    {
      page: "dead letters",
      calls: [
        "/v1/dead-letters/groups",
        "/v1/dead-letters/groups?cause=worker_lost",
        "/v1/dead-letters/count",
        "/v1/parked-streams/groups",
      ],
    },
    {
      page: "consumers",
      calls: ["/v1/status", `/v1/consumers/${part(consumer)}/gaps?limit=20`, "/v1/rebuilds"],
    },
    { page: "ring", calls: ["/v1/ring", `/v1/ring/load?keySpace=${part(keySpace)}`] },
    {
      page: "schedules",
      calls: ["/v1/schedules?limit=1000", `/v1/schedules/${part(schedule)}/firings?limit=20`],
    },
    { page: "tenants", calls: ["/v1/tenants", "/v1/keys", `/v1/tenants/${part(tenant)}/quota`] },
    { page: "audit", calls: ["/v1/audit?limit=50"] },
  ];
}
