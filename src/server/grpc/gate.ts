import {
  type Metadata,
  ResponderBuilder,
  ServerInterceptingCall,
  type ServerInterceptor,
  ServerListenerBuilder,
} from "@grpc/grpc-js";

/**
 * Lets messages of one call through, or holds the next one back. A paused stream of grpc-js reads
 * sixteen messages ahead, of up to 4 MiB each; behind a closed gate waits one.
 */
export class Gate {
  #isOpen = true;
  #held: (() => void) | undefined;

  pass(next: () => void): void {
    if (this.#isOpen) next();
    else this.#held = next;
  }

  open(): void {
    this.#isOpen = true;
    const held = this.#held;
    this.#held = undefined;
    held?.();
  }

  close(): void {
    this.#isOpen = false;
  }
}

const gates = new WeakMap<Metadata, Gate>();

/** Gives every call a gate, which is found again by the call's metadata. */
export const gateInterceptor: ServerInterceptor = (_method, call) => {
  const gate = new Gate();
  const listener = new ServerListenerBuilder()
    .withOnReceiveMetadata((metadata, next) => {
      gates.set(metadata, gate);
      next(metadata);
    })
    .withOnReceiveMessage((message: unknown, next: (message: unknown) => void) => {
      gate.pass(() => next(message));
    })
    .build();
  const responder = new ResponderBuilder().withStart((next) => next(listener)).build();
  return new ServerInterceptingCall(call, responder);
};

export function gateOf({ metadata }: { readonly metadata: Metadata }): Gate {
  const gate = gates.get(metadata);
  if (gate === undefined) throw new Error("this server has no gates");
  return gate;
}
