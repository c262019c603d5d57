import { systemClock, wallClock } from "../base/clock.ts";
import { ConflictError } from "../base/errors.ts";
import type { Stopped } from "../base/stop-signal.ts";
import { Supervisor } from "../base/supervisor.ts";
import type { Queryable } from "../db/database.ts";
import { EgressGuard } from "../delivery/egress/guard.ts";
import { TaskIntake } from "../tasks/intake.ts";
import { QuotaKeeper } from "../tasks/quota-keeper.ts";
import type { Tenants } from "../worker/tenants.ts";
import type { Tidemill } from "../worker/tidemill.ts";
import type { Worker } from "../worker/worker.ts";
import { type Auth, createAuth } from "./auth/create.ts";
import { fetchThrough } from "./auth/fetch-json.ts";
import { clusterStatus } from "./cluster-status.ts";
import { Feed } from "./feed/feed.ts";
import { Admission } from "./grpc/admission.ts";
import { GrpcListener, type GrpcListenerOptions, type StreamRoute } from "./grpc/listener.ts";
import { reflectionRoutes } from "./grpc/reflection.ts";
import { readTopicAttempts } from "./http/codeq/sql/topics.ts";
import { localOnly } from "./http/local-only.ts";
import { createMetricsPage, type MetricsSource } from "./http/metrics-page.ts";
import { apiOf, type ServerExtras, ServerHttp } from "./http/server-http.ts";
import { ServerMetrics } from "./metrics.ts";
import {
  type ResolvedListen,
  type ResolvedServerOptions,
  resolveServerOptions,
  type ServerOptions,
} from "./options.ts";
import { Budget } from "./producer/budget.ts";
import { CreateLine } from "./producer/create-line.ts";
import {
  ACK_BYTES_MAX,
  COMMIT_BYTES_MAX,
  COMMIT_TASKS_MAX,
  ENTRIES_MAX,
  FIELDS_MAX,
} from "./producer/limits.ts";
import { producerRoutes } from "./producer/routes.ts";
import { TopicAttempts } from "./producer/topic-attempts.ts";
import { Desk } from "./workers/desk.ts";
import { HttpClaims } from "./workers/http-claims.ts";
import { RemoteActs } from "./workers/remote-acts.ts";
import { workerRoutes } from "./workers/routes.ts";

/** What serves one kind of client. */
export type ListenerName = "producer" | "worker" | "http" | "metrics";

const STOPPED_LAST_FIRST: readonly ListenerName[] = ["metrics", "http", "producer", "worker"];

/** Of the transaction of creates, which is one at a time, and of one that takes its place. */
const CREATE_CONNECTIONS = 2;
/** What all workers have said and was not answered may weigh so much. */
const ACTS_BYTES_MAX = 64 * 1024 * 1024;
/** How long the end of a stream may take, and what it has under way when its token ends. */
const END_MS = 5_000;

/**
 * Serves clients that have no database: producers and workers over gRPC, everybody over HTTP.
 * Everything it knows is in the database, so that several may run side by side and any of them may
 * die.
 */
export class TidemillServer implements AsyncDisposable {
  readonly metrics = new ServerMetrics();
  readonly #mill: Tidemill;
  readonly #options: ResolvedServerOptions;
  readonly #extras: ServerExtras;
  readonly #egress: EgressGuard;
  readonly #auth: Auth;
  readonly #quotas: QuotaKeeper;
  readonly #intake: TaskIntake;
  readonly #line: CreateLine;
  readonly #desk: Desk;
  readonly #acts: RemoteActs;
  readonly #feed: Feed;
  readonly #listeners = new Map<ListenerName, GrpcListener | ServerHttp>();
  #worker: Worker | undefined;
  /** Makes the calls of tasks. */
  #caller: Worker | undefined;
  #targets: EgressGuard | undefined;
  #tenants: Tenants | undefined;
  #supervisor: Supervisor | undefined;
  /** Until its workers have begun and its ports are open, or one of them could not. */
  #opening: Promise<void> | undefined;
  #stopping: Promise<Stopped> | undefined;

  /**
   * Refuses options that cannot work. The Tidemill is the caller's, who closes it after this. What
   * is served beside its own is for `tidemill dev`.
   */
  constructor(mill: Tidemill, options: ServerOptions = {}, extras: ServerExtras = {}) {
    this.#mill = mill;
    this.#extras = extras;
    this.#options = resolveServerOptions(options);
    const { db, logger, enqueue, tasksEnqueued } = mill.engine;
    this.#egress = new EgressGuard(this.#options.egress);
    const fetchJson = fetchThrough(this.#egress);
    const { httpJobs } = this.#options;
    if (httpJobs !== false) this.#targets = new EgressGuard(httpJobs.egress);
    this.#auth = createAuth(this.#options.auth, { db, fetchJson, logger });
    this.#quotas = new QuotaKeeper(db, { clock: systemClock, logger });
    this.#intake = new TaskIntake(enqueue, db.another(CREATE_CONNECTIONS, logger), {
      queuesMax: this.#options.queuesPerTenantMax,
      metrics: mill.taskMetrics,
      quotas: this.#quotas,
      onStored: tasksEnqueued,
    });
    this.#line = new CreateLine(this.#intake, {
      clock: systemClock,
      logger,
      metrics: this.metrics,
      limits: { tasksMax: COMMIT_TASKS_MAX, bytesMax: COMMIT_BYTES_MAX },
    });
    this.#desk = new Desk({
      directory: enqueue.directory,
      queuesMax: this.#options.queuesPerTenantMax,
      leaseSeconds: this.#options.leaseSeconds,
      clock: systemClock,
      logger,
    });
    this.#acts = new RemoteActs(this.#desk, { clock: systemClock, logger });
    const readStatus = () => clusterStatus(mill);
    this.#feed = new Feed(db, { clock: systemClock, logger, readStatus });
    this.#listen("producer", this.#options.producer, () => this.#producers());
    this.#listen("worker", this.#options.worker, () => this.#workers());
  }

  /** Where the clients of that kind find it, once it has started. */
  address(name: ListenerName): { readonly host: string; readonly port: number } {
    const listener = this.#listeners.get(name);
    if (listener === undefined) throw new ConflictError(`this server does not listen for ${name}`);
    return listener.address;
  }

  /** Of its worker in the registry, once it has started. Undefined: it has none. */
  get workerId(): string | undefined {
    return this.#worker?.id;
  }

  /** Resolves when it listens. */
  async start(): Promise<void> {
    if (this.#supervisor !== undefined || this.#stopping !== undefined) {
      throw new ConflictError("this server was started before; make another");
    }
    await this.#quotas.load();
    await this.#openHttp();
    // Whoever stops first is last: clients go before what answers them, and streams before HTTP,
    // which says meanwhile that nobody else should come.
    const listeners = STOPPED_LAST_FIRST.flatMap((name) => this.#listeners.get(name) ?? []);
    this.#supervisor = new Supervisor([
      ...this.#auth.services,
      this.#quotas,
      this.#line,
      ...(this.#options.http === undefined ? [] : this.#feed.services),
      ...listeners,
    ]);
    const onFailure = (): void => void this.stop().catch(() => {}); // Reported by finished.
    this.#supervisor.finished.catch(onFailure);
    this.#opening = this.#open(listeners);
    try {
      await this.#opening;
    } catch (error) {
      await this.stop().catch(() => {}); // Others may have failed with it; this says why.
      throw error;
    }
  }

  async #open(listeners: readonly (GrpcListener | ServerHttp)[]): Promise<void> {
    await this.#startWorker();
    await this.#startCaller();
    for (const listener of listeners) await listener.listen();
  }

  async #openHttp(): Promise<void> {
    const { http, metrics, tls, drainSeconds, requireWall, queuesPerTenantMax } = this.#options;
    const { logger } = this.#mill.engine;
    const { leaseSeconds } = this.#options;
    const claims = { desk: this.#desk, acts: this.#acts, clock: systemClock, leaseSeconds };
    const desk = new HttpClaims(claims);
    const feed = this.#feed;
    const { dashboard, tokenCheckSeconds } = this.#options;
    const tokenCheckMs = tokenCheckSeconds * 1000;
    const served = { mill: this.#mill, auth: this.#auth, desk, feed, tokenCheckMs };
    const parts = { ...served, dashboard, tls, drainSeconds, logger };
    const sources: MetricsSource[] = [
      this.#mill.metrics,
      this.#mill.taskMetrics,
      this.#mill.deliveryMetrics,
      this.metrics,
    ];
    if (http !== undefined) {
      this.#tenants = await this.#mill.tenants({
        requireWall,
        queuesPerTenantMax,
        quotas: this.#quotas,
        urlGuard: this.#egress,
        ...(this.#targets === undefined ? {} : { targetGuard: this.#targets }),
      });
      const { httpLimits } = this.#options;
      const api = apiOf(this.#tenants, { ...parts, httpLimits, extras: this.#extras });
      const isOpen = this.#options.auth.insecureNoAuth !== undefined;
      const fetch = isOpen ? localOnly(api.fetch, logger) : api.fetch;
      sources.push(api.metrics, this.#feed.metrics);
      this.#listeners.set("http", new ServerHttp("http", http, { ...parts, ...api, fetch }));
    }
    if (metrics === undefined) return;
    const page = { fetch: createMetricsPage(sources), isExclusive: true };
    this.#listeners.set("metrics", new ServerHttp("metrics", metrics, { ...parts, ...page }));
  }

  /** A worker of the engine, whose tasks are run by remote ones, and that sends webhooks. */
  async #startWorker(): Promise<void> {
    const { cluster, leaseSeconds, drainSeconds, deliverWebhooks } = this.#options;
    const options = {
      ...cluster,
      leaseSeconds,
      drainTimeout: drainSeconds * 1000,
      deliverWebhooks,
    };
    const handsOut = this.#listeners.has("worker") || this.#listeners.has("http");
    if (handsOut) {
      this.#worker = await this.#mill.startRemoteWorker(options, this.#desk);
    } else if (deliverWebhooks === false) return;
    else this.#worker = await this.#mill.startWorker(options);
    this.#worker.finished.catch(() => void this.stop().catch(() => {})); // As above.
  }

  /** Apart from the other, because its slots are calls. */
  async #startCaller(): Promise<void> {
    const { cluster, drainSeconds, httpJobs } = this.#options;
    if (httpJobs === false) return;
    this.#caller = await this.#mill.startWorker({
      ...cluster,
      drainTimeout: drainSeconds * 1000,
      httpJobs,
    });
    this.#caller.finished.catch(() => void this.stop().catch(() => {})); // As above.
  }

  /** Rejects when a part of it could not go on. */
  get finished(): Promise<void> {
    const parts = [this.#supervisor?.finished, this.#worker?.finished, this.#caller?.finished];
    return Promise.all(parts.filter((part) => part !== undefined)).then(() => {});
  }

  /**
   * Takes no more clients and no more work, lets go of those that are there, and answers what they
   * had sent. Tells what had begun and was given back.
   */
  async stop(): Promise<Stopped> {
    this.#stopping ??= this.#stop();
    return await this.#stopping;
  }

  async #stop(): Promise<Stopped> {
    // A port that is taken shows before the workers have begun: they would go on for ever.
    await this.#opening?.catch(() => {});
    // All at once: together they take as long as one.
    const called = this.#caller?.stop();
    this.#worker?.stopFetching();
    if (this.#supervisor !== undefined) {
      for (const listener of this.#listeners.values()) listener.drain();
    }
    let givenBack = 0;
    try {
      await this.#supervisor?.stop();
    } finally {
      // What no worker has settled by now is given back.
      for (const part of await Promise.all([called, this.#worker?.stop()])) {
        givenBack += part?.givenBack ?? 0;
      }
      this.#desk.close();
      await this.#intake.close();
      this.#tenants?.close();
      this.#egress.close();
      this.#targets?.close();
    }
    return { givenBack };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #listen(
    name: ListenerName,
    at: ResolvedListen | undefined,
    routes: () => readonly StreamRoute[],
  ): void {
    if (at === undefined) return;
    const streams = routes();
    const served = this.#options.reflection ? [...streams, ...reflectionRoutes(streams)] : streams;
    this.#listeners.set(name, new GrpcListener(this.#listenerOptions(name, at), served));
  }

  #producers(): readonly StreamRoute[] {
    const { db, logger } = this.#mill.engine;
    // Behind the second wall, where the server has it: with HTTP.
    const storeOf = (tenant: string): Queryable => this.#tenants?.store(tenant) ?? db;
    return producerRoutes({
      admission: this.#admission(),
      intake: this.#intake,
      line: this.#line,
      budget: new Budget(this.#options.createBytesMax),
      topics: new TopicAttempts((one) => readTopicAttempts(storeOf(one), one), systemClock),
      metrics: this.metrics,
      clock: systemClock,
      logger,
      finishMs: END_MS,
    });
  }

  #workers(): readonly StreamRoute[] {
    const { graceSeconds, leaseSeconds } = this.#options;
    return workerRoutes({
      admission: this.#admission(),
      desk: this.#desk,
      acts: this.#acts,
      budget: new Budget(ACTS_BYTES_MAX),
      leaseSeconds,
      clock: systemClock,
      logger: this.#mill.engine.logger,
      graceMs: graceSeconds * 1000,
      finishMs: END_MS,
    });
  }

  #admission(): Admission {
    return new Admission({
      authenticator: this.#auth.authenticator,
      clock: systemClock,
      wallClock,
      logger: this.#mill.engine.logger,
      recheckMs: this.#options.tokenCheckSeconds * 1000,
    });
  }

  #listenerOptions(name: ListenerName, at: ResolvedListen): GrpcListenerOptions {
    const options = this.#options;
    return {
      name,
      ...at,
      tls: options.tls,
      clock: systemClock,
      logger: this.#mill.engine.logger,
      limits: { entriesMax: ENTRIES_MAX, fieldsMax: FIELDS_MAX },
      helloMs: options.helloSeconds * 1000,
      endMs: END_MS,
      stallMs: options.stallSeconds * 1000,
      writeBytesMax: ACK_BYTES_MAX,
      keepaliveMs: options.keepaliveSeconds * 1000,
      keepaliveTimeoutMs: options.keepaliveTimeoutSeconds * 1000,
      connectionStreamsMax: options.connectionStreamsMax,
      streamsMax: options.streamsMax,
      streamsPerTenantMax: options.streamsPerTenantMax,
      strangersMax: options.strangersMax,
      strangersPerAddressMax: options.strangersPerAddressMax,
      drainMs: options.drainSeconds * 1000,
      onCount: (count) => this.metrics.streams.set(count, { listener: name }),
    };
  }
}
