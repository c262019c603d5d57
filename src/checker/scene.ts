import type { EventFact } from "./truth.ts";

/** What a load is made of, as far as rules have to know. */
export interface Scene {
  /** Consumers, and which events each must handle. */
  readonly consumers: readonly {
    readonly name: string;
    readonly handles: (event: EventFact) => boolean;
    /** Whether streams may be set aside: those are handled later than the checkpoint tells. */
    readonly setsAside?: boolean;
  }[];
  /** Queues whose tasks have names that nobody else carries: by them calls find their tasks. */
  readonly isNamed: (queue: string) => boolean;
  /** Queues whose tasks are completed in the transaction of their effect. */
  readonly hasEffect: (queue: string) => boolean;
  /** Queues whose keyed tasks leave no effect: when their end was accepted tells their order. */
  readonly isOrderedByEnd: (queue: string) => boolean;
  /** Queues of one key space share the order of their keys. */
  readonly keySpaceOf: (queue: string) => string;
  /** Queues whose handlers say that they begin. Defaults to none. */
  readonly begins?: readonly string[];
  readonly leaseSeconds: number;
  /** Of queues that are limited, how many tasks may run at once. */
  readonly limits: Readonly<Record<string, number>>;
  /** Between two ticks of a schedule. */
  readonly tickMs: number;
}
