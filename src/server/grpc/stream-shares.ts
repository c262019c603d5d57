import { status } from "@grpc/grpc-js";
import { parseAddress } from "../../delivery/egress/address.ts";
import { StreamError } from "./peer.ts";

export interface StreamSharesOptions {
  /** Of those that have not said hello, in all. */
  readonly strangersMax: number;
  /** The same of one address. */
  readonly strangersPerAddressMax: number;
  /** Of those of one tenant. */
  readonly streamsPerTenantMax: number;
}

/** One stream that is counted: as a stranger, then for its tenant. */
export interface CountedStream {
  /** Throws a StreamError when the tenant has as many as it may. */
  enter(tenant: string): void;
  leave(): void;
}

/** Keeps one tenant, and strangers of one address, from taking every stream of a port. */
export class StreamShares {
  readonly #options: StreamSharesOptions;
  readonly #tenants = new Map<string, number>();
  readonly #addresses = new Map<string, number>();
  #strangers = 0;

  constructor(options: StreamSharesOptions) {
    this.#options = options;
  }

  /** Why no stranger from there is let in now. */
  refusalOf(peer: string): string | undefined {
    const { strangersMax, strangersPerAddressMax } = this.#options;
    const own = this.#addresses.get(addressOf(peer)) ?? 0;
    const isFull = this.#strangers >= strangersMax || own >= strangersPerAddressMax;
    return isFull ? "too many streams wait for their hello" : undefined;
  }

  arrive(peer: string): CountedStream {
    const address = addressOf(peer);
    let state: "stranger" | "known" | "gone" = "stranger";
    let name = "";
    this.#strangers += 1;
    change(this.#addresses, address, 1);
    const recognise = (): void => {
      this.#strangers -= 1;
      change(this.#addresses, address, -1);
    };
    return {
      enter: (tenant) => {
        if (state !== "stranger") return;
        if ((this.#tenants.get(tenant) ?? 0) >= this.#options.streamsPerTenantMax) {
          const why = "the tenant has as many streams as one may have here";
          throw new StreamError(status.UNAVAILABLE, why);
        }
        recognise();
        state = "known";
        name = tenant;
        change(this.#tenants, name, 1);
      },
      leave: () => {
        if (state === "stranger") recognise();
        if (state === "known") change(this.#tenants, name, -1);
        state = "gone";
      },
    };
  }
}

function change(counts: Map<string, number>, key: string, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}

const NETWORK_BITS = 64n;

/** Without its port. Of IPv6 the network: whoever has one address of it has all. */
export function addressOf(peer: string): string {
  const host = peer.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  const address = parseAddress(host);
  if (address === undefined) return host;
  const { family, value } = address;
  return family === 4 ? `4 ${value}` : `6 ${value >> NETWORK_BITS}`;
}
