import type { TidemillError, UnauthenticatedError } from "../../base/errors.ts";
import type { JsonText } from "../../base/json-text.ts";
import type { TaskOptions } from "../../tasks/new-task.ts";
import type { StoreResult } from "../../tasks/store.ts";
import type { Caller } from "../auth/caller.ts";
import type { Codec, StreamError } from "../grpc/peer.ts";

/** A task as a message has it. */
export interface SoundTask {
  readonly queue: string;
  readonly payload: JsonText | Uint8Array;
  /** Tasks that are alike may have the same: then it is checked once. */
  readonly options: TaskOptions;
}

/** A task as a message has it, or what is wrong with it. */
export type GivenTask = SoundTask | TidemillError;

/** Tasks that came in one message, to be answered together. */
export interface GivenCreate {
  readonly seq: bigint;
  /** The client's numbers of its tasks, where they have some. */
  readonly seqs: readonly (number | bigint)[];
  readonly tasks: readonly GivenTask[];
  readonly isAtomic: boolean;
  /** It came as a list, and is answered by one. */
  readonly isBatch: boolean;
}

export interface GivenHello {
  readonly token: string;
  /** Of automatic idempotency keys; "" for none. */
  readonly producerId: string;
}

/** What a message asks for. */
export type Move =
  | { readonly kind: "hello"; readonly hello: GivenHello }
  | { readonly kind: "create"; readonly create: GivenCreate }
  | { readonly kind: "unknown" };

/** How producers of one kind are understood and answered. The rules of the stream are elsewhere. */
export interface ProducerDialect<In, Out> {
  readonly path: string;
  readonly codec: Codec<In, Out>;
  /** More creates at once than it may have: "wait" reads no further, "refuse" says so. */
  readonly whenFull: "wait" | "refuse";
  /** Whether a task without a number of attempts has that of its topic, if there is one. */
  readonly heedsTopics: boolean;
  /** @param producerId of the hello; "" before it */
  read(message: In, producerId: string): Move;
  helloAck(caller: Caller): Out;
  /** One answer or several. */
  answers(create: GivenCreate, results: readonly StoreResult[]): Out[];
  /** Nothing of the create was stored. */
  refused(create: GivenCreate, error: unknown): Out[];
  /** The stream goes on. */
  alreadyKnown(): Out;
  unknown(): Out;
  /** Says that the server goes, where there is a word for it. */
  drain(graceMs: number): Out | undefined;
  /** The stream does not begin with a hello. */
  notHello(): StreamError;
  unauthenticated(error: UnauthenticatedError): StreamError;
  /** The token does not allow any create. */
  forbidden(): StreamError;
}
