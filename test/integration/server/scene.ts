import { expect } from "vitest";
import type { Logger } from "../../../src/base/log.ts";
import type { ConnectOptions, Tidemill } from "../../../src/index.ts";
import { type ServerOptions, TidemillServer } from "../../../src/server/index.ts";
import type { CreateAck, CreateTask } from "../../../src/wire/generated/codeq/producer.ts";
import type {
  NewTask,
  CreateAck as TidemillAck,
} from "../../../src/wire/generated/tidemill/v1/producer.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import {
  type CodeqStream,
  codeqStream,
  type TidemillStream,
  tidemillStream,
} from "../../support/stream-client.ts";

export const ACME = "token-of-acme-0123456789";
export const GLOBEX = "token-of-globex-0123456789";
export const ACME_WORKER = "token-of-an-acme-worker-0123456789";
export const GLOBEX_WORKER = "token-of-a-globex-worker-0123456789";
export const READER = "token-of-a-reader-0123456789";
/** The same person as the worker of acme, who may everything. */
export const ACME_ADMIN = "token-of-an-acme-admin-0123456789";
export const MAILS_ONLY = "token-for-mails-0123456789";
export const MAILS_WORKER = "token-of-a-worker-for-mails-0123456789";
/** The same person as the worker of acme, for other queues. */
export const LETTERS_HAND = "token-of-a-hand-for-letters-0123456789";

const STATIC = [
  { token: ACME, tenant: "acme", scopes: ["producer"], subject: "robot" },
  { token: GLOBEX, tenant: "globex", scopes: ["producer"] },
  { token: ACME_WORKER, tenant: "acme", scopes: ["worker"], subject: "hand" },
  { token: GLOBEX_WORKER, tenant: "globex", scopes: ["worker"] },
  { token: READER, tenant: "acme", scopes: ["read"] },
  { token: ACME_ADMIN, tenant: "acme", scopes: ["admin"], subject: "hand" },
  { token: MAILS_ONLY, tenant: "acme", scopes: ["producer"], queues: ["mails"] },
  { token: MAILS_WORKER, tenant: "acme", scopes: ["worker:claim"], queues: ["mails"] },
  { token: LETTERS_HAND, tenant: "acme", scopes: ["worker"], queues: ["letters"], subject: "hand" },
] as const;

export interface Line {
  readonly level: keyof Logger;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

export interface Scene {
  readonly database: TestDatabase;
  readonly mill: Tidemill;
  readonly server: TidemillServer;
  readonly url: string;
  readonly logs: readonly Line[];
  readonly codeq: () => CodeqStream;
  readonly tidemill: () => TidemillStream;
}

export interface SceneOptions {
  /** How long it lives. Defaults to "test". */
  readonly until?: "test" | "file";
  readonly server?: ServerOptions;
  readonly connect?: ConnectOptions;
  /** Defaults to a new one. */
  readonly database?: TestDatabase;
  /** By which the server reaches the database. Defaults to the database's own. */
  readonly databaseUrl?: string;
}

/** A server on a free port, over a database of its own, and clients that are closed behind it. */
export async function scene(options: SceneOptions = {}): Promise<Scene> {
  const { until = "test" } = options;
  const database = options.database ?? (await testDatabase({ until }));
  const logs: Line[] = [];
  const logger = recorder(logs);
  const mill = await connect(database, { ...options.connect, logger }, options.databaseUrl);
  const { auth, ...rest } = options.server ?? {};
  const server = new TidemillServer(mill, {
    host: "127.0.0.1",
    producer: { port: 0 },
    worker: false,
    http: false,
    metrics: false,
    deliverWebhooks: false,
    drainSeconds: 2,
    ...rest,
    auth: { staticTokens: STATIC, ...auth },
  });
  await server.start();
  onCleanup(() => server.stop(), until);
  const url = `127.0.0.1:${server.address("producer").port}`;
  const kept = <T extends { close(): void }>(client: T): T => {
    onCleanup(() => Promise.resolve(client.close()));
    return client;
  };
  return {
    database,
    mill,
    server,
    url,
    logs,
    codeq: () => kept(codeqStream(url)),
    tidemill: () => kept(tidemillStream(url)),
  };
}

async function connect(
  database: TestDatabase,
  options: ConnectOptions,
  url: string | undefined,
): Promise<Tidemill> {
  if (url === undefined) return await database.connect(options);
  const { Tidemill: Connected } = await import("../../../src/index.ts");
  const mill = await Connected.connect(url, options);
  onCleanup(() => mill.close());
  return mill;
}

function recorder(lines: Line[]): Logger {
  const note =
    (level: keyof Logger) =>
    (fields: object, message: string): void =>
      void lines.push({ level, fields: { ...fields }, message });
  return { debug: note("debug"), info: note("info"), warn: note("warn"), error: note("error") };
}

/** Says hello to CodeQ's stream and waits to be known. */
export async function codeqHello(stream: CodeqStream, token = ACME): Promise<CodeqStream> {
  stream.send({ event: { $case: "hello", value: { token } } });
  await stream.until(1);
  return stream;
}

const CREATE: CreateTask = {
  seq: 1n,
  command: "mails",
  payload: Buffer.from("{}"),
  priority: 0,
  webhook: "",
  maxAttempts: 0,
  idempotencyKey: "",
  runAt: undefined,
  delaySeconds: 0,
  traceParent: "",
  traceState: "",
  deduplicationKey: "",
  taskId: "",
};

export const codeqTask = (task: Partial<CreateTask>): CreateTask => ({ ...CREATE, ...task });

export function codeqCreate(stream: CodeqStream, task: Partial<CreateTask>): void {
  stream.send({ event: { $case: "create", value: codeqTask(task) } });
}

export function codeqBatch(stream: CodeqStream, tasks: readonly Partial<CreateTask>[]): void {
  stream.send({ event: { $case: "createBatch", value: { tasks: tasks.map(codeqTask) } } });
}

/** All acks so far, whether they came alone or in batches. */
export function codeqAcks({ received }: CodeqStream): CreateAck[] {
  return received.flatMap(({ event }) => {
    if (event?.$case === "createAck") return [event.value];
    return event?.$case === "createAckBatch" ? event.value.acks : [];
  });
}

export const PRODUCER = "0195a1b2-0000-7000-8000-000000000001";

export async function hello(
  stream: TidemillStream,
  { token = ACME, producerId = "" } = {},
): Promise<TidemillStream> {
  const value = { token, producerId, client: undefined };
  stream.send({ message: { $case: "hello", value } });
  await stream.until(1);
  return stream;
}

const TASK: NewTask = {
  queue: "mails",
  payload: Buffer.from("{}"),
  contentType: "",
  kind: "",
  priority: undefined,
  partitionKey: "",
  runAt: undefined,
  delaySeconds: 0,
  maxAttempts: 0,
  backoff: undefined,
  timeoutSeconds: 0,
  idempotencyKey: "",
  idempotencySeconds: 0,
  webhook: "",
  traceParent: "",
  traceState: "",
};

export const newTask = (task: Partial<NewTask> = {}): NewTask => ({ ...TASK, ...task });

export function create(
  stream: TidemillStream,
  seq: bigint,
  tasks: readonly Partial<NewTask>[] = [{}],
  isAtomic = false,
): void {
  const value = { seq, tasks: tasks.map(newTask), isAtomic };
  stream.send({ message: { $case: "create", value } });
}

/** By seq: ids, or the codes of failures. */
export function acks({ received }: TidemillStream): Map<bigint, string[]> {
  const found = received.flatMap(({ message }) =>
    message?.$case === "createAck" ? [message.value] : [],
  );
  return new Map(found.map(({ seq, results }) => [seq, results.map(toText)]));
}

function toText({ result }: TidemillAck["results"][number]): string {
  return result?.$case === "failure" ? result.value.code : (result?.value ?? "nothing");
}

/** The messages that a whole create was refused with, by seq. */
export function refusals({ received }: TidemillStream): Map<bigint, string> {
  return new Map(
    received.flatMap(({ message }) =>
      message?.$case === "refused"
        ? [[message.value.requestId, message.value.failure?.code ?? ""]]
        : [],
    ),
  );
}

/** From now on whoever commits tasks waits in COMMIT while somebody has advisory lock 42. */
export async function waitInCommit({ pool }: TestDatabase): Promise<void> {
  await pool.query(`
    CREATE FUNCTION wait_in_commit() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON tidemill.tasks
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_in_commit()`);
}

/** The session that waits in COMMIT. */
export async function committing({ pool }: TestDatabase): Promise<number> {
  return await eventually(async () => {
    const { rows } = await pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'advisory'`,
    );
    expect(rows).toHaveLength(1);
    return rows[0]?.pid ?? 0;
  });
}
