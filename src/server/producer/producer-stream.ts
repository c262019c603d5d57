import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import {
  ForbiddenError,
  InvalidInputError,
  LimitError,
  messageOf,
  TidemillError,
  UnauthenticatedError,
  UnavailableError,
} from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { isUuid } from "../../base/uuid.ts";
import type { EncodedTask } from "../../tasks/encode.ts";
import type { TaskIntake } from "../../tasks/intake.ts";
import type { Settle } from "../../tasks/quota-keeper.ts";
import type { StoreResult } from "../../tasks/store.ts";
import { type Caller, may, mayOnSome } from "../auth/caller.ts";
import { asInput, failureOf } from "../failure.ts";
import type { Admission } from "../grpc/admission.ts";
import { type Peer, type PeerHandler, StreamError } from "../grpc/peer.ts";
import { streamErrorOf } from "../grpc/status.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { Budget, Place } from "./budget.ts";
import type { CreateLine } from "./create-line.ts";
import type { GivenCreate, GivenHello, GivenTask, ProducerDialect } from "./dialect.ts";
import { CREATES_MAX, HELLO_BYTES_MAX, STREAM_BYTES_MAX, TASKS_MAX, weightOf } from "./limits.ts";
import type { CreateOutcome } from "./open-create.ts";
import { completing, type TopicAttempts } from "./topic-attempts.ts";

export interface ProducerKit {
  readonly admission: Admission;
  readonly intake: TaskIntake;
  readonly line: CreateLine;
  readonly budget: Budget;
  readonly topics: TopicAttempts;
  readonly metrics: ServerMetrics;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long creates under way may take when the stream is to end. */
  readonly finishMs: number;
}

/**
 * One producer. It says hello, creates tasks, and goes:
 *
 * - a create is weighed before it is decoded, checked before it is submitted, and answered when it
 *   is stored; creates are stored in the order in which they came
 * - what is not known to be stored or not is not answered: the stream ends
 * - when it is to end, nothing more is taken, and what is under way is answered first
 */
export class ProducerStream<In, Out> implements PeerHandler<In> {
  readonly #peer: Peer<In, Out>;
  readonly #dialect: ProducerDialect<In, Out>;
  readonly #kit: ProducerKit;
  readonly #over = new AbortController();
  #caller: Caller | undefined;
  #producerId = "";
  /** Of the message that is being handled, until a create takes it over. */
  #place: Place | undefined;
  #placeBytes = 0;
  #creates = 0;
  #bytes = 0;
  #onLess: (() => void) | undefined;
  /** How the stream is to end once nothing is under way. */
  #end: StreamError | undefined;

  constructor(peer: Peer<In, Out>, dialect: ProducerDialect<In, Out>, kit: ProducerKit) {
    this.#peer = peer;
    this.#dialect = dialect;
    this.#kit = kit;
  }

  admit(bytes: number, entries: number): void | Promise<void> {
    if (this.#caller === undefined) {
      if (bytes <= HELLO_BYTES_MAX) return;
      throw new StreamError(
        status.INVALID_ARGUMENT,
        `a hello has at most ${HELLO_BYTES_MAX} bytes, and must be the first message`,
      );
    }
    const weight = weightOf(bytes, entries);
    const { tenant } = this.#caller;
    return this.#isFull(weight)
      ? this.#waitForLess(weight).then(() => this.#weigh(tenant, weight))
      : this.#weigh(tenant, weight);
  }

  /** What one stream may have is less than all of them: one client must not have it all. */
  #isFull(weight: number): boolean {
    const isFull = this.#dialect.whenFull === "wait" && this.#creates >= CREATES_MAX;
    return isFull || (this.#bytes > 0 && this.#bytes + weight > STREAM_BYTES_MAX);
  }

  async #waitForLess(weight: number): Promise<void> {
    while (this.#isFull(weight) && !this.#peer.isOver) {
      await new Promise<void>((resolve) => {
        this.#onLess = resolve;
      });
    }
  }

  #weigh(tenant: string, weight: number): void | Promise<void> {
    const { budget, metrics } = this.#kit;
    if (this.#peer.isOver) return;
    this.#placeBytes = weight;
    this.#place = budget.take(tenant, weight);
    metrics.createBytes.set(budget.bytes);
    return this.#place.waiting;
  }

  async onMessage(message: In): Promise<void> {
    try {
      await this.#dealWith(message);
    } finally {
      this.#releasePlace();
    }
  }

  async #dealWith(message: In): Promise<void> {
    const move = this.#dialect.read(message, this.#producerId);
    const caller = this.#caller;
    if (caller === undefined) {
      if (move.kind !== "hello") throw this.#dialect.notHello();
      await this.#hello(move.hello);
    } else if (move.kind === "create") await this.#create(caller, move.create);
    else if (move.kind === "hello") this.#peer.send(this.#dialect.alreadyKnown());
    else this.#peer.send(this.#dialect.unknown());
  }

  async #hello({ token, producerId }: GivenHello): Promise<void> {
    const { admission } = this.#kit;
    if (producerId !== "" && !isUuid(producerId)) {
      throw new StreamError(status.INVALID_ARGUMENT, "producer_id must be a UUID, or empty");
    }
    const admitted = await admission.admit(token, this.#peer.address).catch((error: unknown) => {
      throw error instanceof UnauthenticatedError
        ? this.#dialect.unauthenticated(error)
        : streamErrorOf(error);
    });
    const { caller } = admitted;
    if (!mayOnSome(caller, "task.create")) throw this.#dialect.forbidden();
    this.#caller = caller;
    this.#producerId = producerId.toLowerCase();
    this.#peer.welcome(caller.tenant);
    this.#peer.send(this.#dialect.helloAck(caller));
    const refusal = admitted.watch(this.#over.signal);
    void refusal.then((error) => {
      if (error === undefined) return;
      this.#finish(this.#dialect.unauthenticated(error), this.#kit.finishMs);
    });
  }

  async #create(caller: Caller, create: GivenCreate): Promise<void> {
    const refusal = this.#refusalOf(create);
    if (refusal !== undefined) {
      this.#count("refused");
      for (const out of this.#dialect.refused(create, refusal)) this.#peer.send(out);
      return;
    }
    const place = this.#takePlace();
    this.#creates += 1;
    this.#bytes += place.bytes;
    let checked: (EncodedTask | TidemillError)[];
    try {
      checked = await this.#check(caller, create.tasks);
    } catch (error) {
      this.#log("warn", error);
      this.#settle(create, [], place, { kind: "refused", error });
      return;
    }
    const fault = checked.find((one) => one instanceof TidemillError);
    if (fault !== undefined) this.#log("debug", fault);
    const results = create.isAtomic && fault !== undefined ? checked.map(() => fault) : checked;
    const tasks = results.filter(isSound);
    if (tasks.length === 0) {
      this.#settle(create, results, place, { kind: "stored", results: [] });
      return;
    }
    let admitted: Settle | undefined;
    try {
      const admitting = this.#kit.intake.admit(caller.tenant, tasks);
      admitted = admitting instanceof Promise ? await admitting : admitting;
    } catch (error) {
      this.#settle(create, results, place, await this.#notAdmitted(tasks, error));
      return;
    }
    this.#kit.line.submit({
      tenant: caller.tenant,
      source: this,
      tasks,
      bytes: place.bytes,
      isAtomic: create.isAtomic,
      settle: (outcome) => {
        admitted?.(outcome.kind !== "refused");
        this.#settle(create, results, place, outcome);
      },
    });
  }

  /** At the quota: a repetition of what is stored is answered all the same. */
  async #notAdmitted(tasks: readonly EncodedTask[], error: unknown): Promise<CreateOutcome> {
    try {
      const ids = await this.#kit.intake.findStored(tasks);
      if (ids !== undefined) return { kind: "stored", results: ids };
    } catch (thrown) {
      this.#log("warn", thrown);
    }
    this.#log("debug", error);
    return { kind: "refused", error };
  }

  #refusalOf({ tasks }: GivenCreate): TidemillError | undefined {
    if (this.#end !== undefined) return new UnavailableError("the stream is ending");
    if (this.#dialect.whenFull === "wait") return undefined;
    if (this.#creates >= CREATES_MAX) {
      return new LimitError(`${CREATES_MAX} creates wait for their answer already`);
    }
    if (tasks.length <= TASKS_MAX) return undefined;
    return new InvalidInputError(`a create has at most ${TASKS_MAX} tasks, not ${tasks.length}`);
  }

  /** Throws only what concerns all of them. */
  async #check(
    caller: Caller,
    tasks: readonly GivenTask[],
  ): Promise<(EncodedTask | TidemillError)[]> {
    const { intake, topics } = this.#kit;
    const complete = this.#dialect.heedsTopics
      ? completing(await topics.of(caller.tenant))
      : undefined;
    const checked: (EncodedTask | TidemillError)[] = [];
    let allowed: string | undefined;
    for (const given of tasks) {
      if (given instanceof TidemillError) {
        checked.push(given);
        continue;
      }
      const { queue, payload, options } = given;
      if (queue !== allowed && !may(caller, "task.create", queue)) {
        checked.push(new ForbiddenError(`this token is not for queue ${JSON.stringify(queue)}`));
        continue;
      }
      allowed = queue;
      try {
        const completed = complete?.(queue, options) ?? options;
        const encoding = intake.encode(caller.tenant, queue, payload, completed);
        checked.push(encoding instanceof Promise ? await encoding : encoding);
      } catch (thrown) {
        const error = asInput(thrown);
        if (!(error instanceof TidemillError) || error.retryable) throw error;
        checked.push(error);
      }
    }
    return checked;
  }

  /** @param results of the tasks that were not submitted; the others are what was submitted */
  #settle(
    create: GivenCreate,
    results: readonly (EncodedTask | TidemillError)[],
    { place, bytes }: TakenPlace,
    outcome: CreateOutcome,
  ): void {
    place.release();
    this.#creates -= 1;
    this.#bytes -= bytes;
    this.#kit.metrics.createBytes.set(this.#kit.budget.bytes);
    this.#count(outcome.kind);
    this.#onLess?.();
    if (outcome.kind === "unknown") {
      this.#peer.end(
        status.UNAVAILABLE,
        "it is not known whether creates without an answer were stored: send them again with " +
          "their idempotency keys",
      );
      return;
    }
    try {
      for (const out of this.#answers(create, results, outcome)) this.#peer.send(out);
      this.#endIfDone();
    } catch (error) {
      this.#kit.logger.error({ error: messageOf(error) }, "a stream failed");
      this.#peer.end(status.INTERNAL, "internal error");
    }
  }

  #answers(
    create: GivenCreate,
    checked: readonly (EncodedTask | TidemillError)[],
    outcome: Exclude<CreateOutcome, { kind: "unknown" }>,
  ): Out[] {
    return outcome.kind === "refused"
      ? this.#dialect.refused(create, outcome.error)
      : this.#dialect.answers(create, merge(checked, outcome.results));
  }

  #log(what: "warn" | "debug", error: unknown): void {
    const tenant = this.#caller?.tenant;
    const fields = { tenant, code: failureOf(error).code, error: messageOf(error) };
    this.#kit.logger[what](fields, "refused a create");
  }

  onHalfClose(): void {
    this.#finish(new StreamError(status.OK, ""), this.#kit.finishMs);
  }

  onDrain(graceMs: number): void {
    const notice = this.#caller === undefined ? undefined : this.#dialect.drain(graceMs);
    if (notice !== undefined) this.#peer.send(notice);
    const end = new StreamError(status.UNAVAILABLE, "the server is stopping; connect again");
    this.#finish(end, graceMs);
  }

  onOver(): void {
    this.#over.abort();
    this.#releasePlace();
    this.#onLess?.();
    if (this.#caller !== undefined) this.#kit.line.forget(this.#caller.tenant, this);
  }

  /** Ends the stream when what is under way was answered, or when that takes too long. */
  #finish(end: StreamError, withinMs: number): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    const { clock } = this.#kit;
    const cancel = clock.after(withinMs, () => this.#peer.end(end.code, end.message));
    void this.#peer.over.then(cancel);
    this.#endIfDone();
  }

  #endIfDone(): void {
    if (this.#end !== undefined && this.#creates === 0) {
      this.#peer.end(this.#end.code, this.#end.message);
    }
  }

  #count(outcome: CreateOutcome["kind"]): void {
    this.#kit.metrics.creates.add(1, { outcome });
  }

  #takePlace(): TakenPlace {
    const place = this.#place;
    const bytes = this.#placeBytes;
    this.#place = undefined;
    return { place: place ?? { waiting: undefined, release: () => {} }, bytes };
  }

  #releasePlace(): void {
    this.#place?.release();
    this.#place = undefined;
  }
}

/** Of one create, until it is answered. */
interface TakenPlace {
  readonly place: Place;
  readonly bytes: number;
}

const isSound = (one: EncodedTask | TidemillError): one is EncodedTask =>
  !(one instanceof TidemillError);

/** Those that were stored, in the places of what was submitted. */
function merge(
  checked: readonly (EncodedTask | TidemillError)[],
  stored: readonly StoreResult[],
): readonly StoreResult[] {
  if (stored.length === checked.length) return stored; // All of them were submitted.
  let next = 0;
  return checked.map((one) => {
    if (one instanceof TidemillError) return one;
    const result = stored[next];
    next += 1;
    if (result === undefined) throw new Error("a task has no result");
    return result;
  });
}
