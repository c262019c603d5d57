/** Something that somebody did through a server, as far as it says whom it concerns. */
export interface ToldAct {
  /** What a token must allow for it. */
  readonly act: string;
  /** Of whoever did it. */
  readonly tenant: string;
  /** Of an act on a queue, which is all tenants' alike. */
  readonly queue: string | undefined;
}

/** From the JSON of its row, which a trigger writes (sql/migrations/0025_dashboard.sql). */
export function readAct(data: string): ToldAct {
  const {
    act = "",
    call = "",
    tenant = "",
    target,
  } = JSON.parse(data) as {
    readonly act?: string;
    readonly call?: string;
    readonly tenant?: string;
    readonly target?: { readonly name?: string };
  };
  return { act, tenant, queue: call.includes(" /v1/queues/") ? target?.name : undefined };
}
