import {
  type ChannelCredentials,
  type Client,
  type ClientDuplexStream,
  credentials,
  status,
} from "@grpc/grpc-js";
import {
  ProducerStreamClient as CodeqClient,
  type ProducerEvent,
  type ServerEvent,
} from "../../src/wire/generated/codeq/producer.ts";
import {
  type WorkerEvent,
  type ServerEvent as WorkerServerEvent,
  WorkerStreamClient,
} from "../../src/wire/generated/codeq/worker.ts";
import {
  type FromProducer,
  ProducerStreamClient,
  type ToProducer,
} from "../../src/wire/generated/tidemill/v1/producer.ts";
import {
  type FromWorker,
  WorkerStreamClient as TidemillWorkerClient,
  type ToWorker,
} from "../../src/wire/generated/tidemill/v1/worker.ts";

export interface Ended {
  readonly code: status;
  readonly details: string;
}

/** The client's side of a stream: what it sends, and everything that it was told. */
export class StreamClient<Sent, Received> {
  readonly received: Received[] = [];
  /** How the stream ended. */
  readonly ended: Promise<Ended>;
  readonly call: ClientDuplexStream<Sent, Received>;
  readonly #client: Client;
  #isEnded = false;
  #onNews: () => void = () => {};

  constructor(client: Client, call: ClientDuplexStream<Sent, Received>) {
    this.#client = client;
    this.call = call;
    call.on("data", (message: Received) => {
      this.received.push(message);
      this.#onNews();
    });
    call.on("error", () => {});
    this.ended = new Promise((resolve) => {
      call.on("status", ({ code, details }) => {
        this.#isEnded = true;
        resolve({ code, details });
        this.#onNews();
      });
    });
  }

  send(message: Sent): void {
    this.call.write(message);
  }

  /** Waits until so many messages have come, or the stream has ended. */
  async until(count: number): Promise<readonly Received[]> {
    while (this.received.length < count && !this.#isEnded) {
      await new Promise<void>((resolve) => {
        this.#onNews = resolve;
      });
    }
    return this.received;
  }

  close(): void {
    this.call.cancel();
    this.#client.close();
  }
}

export type TidemillStream = StreamClient<FromProducer, ToProducer>;
export type CodeqStream = StreamClient<ProducerEvent, ServerEvent>;

const OPTIONS = { "grpc.use_local_subchannel_pool": 1 };

export function tidemillStream(url: string): TidemillStream {
  const client = new ProducerStreamClient(url, credentials.createInsecure(), OPTIONS);
  return new StreamClient(client, client.stream());
}

/** @param tls the server has the certificate of hooks.test */
export function codeqStream(url: string, tls?: ChannelCredentials): CodeqStream {
  const name = tls === undefined ? {} : { "grpc.ssl_target_name_override": "hooks.test" };
  const client = new CodeqClient(url, tls ?? credentials.createInsecure(), {
    ...OPTIONS,
    ...name,
  });
  return new StreamClient(client, client.stream());
}

export type CodeqWorker = StreamClient<WorkerEvent, WorkerServerEvent>;

export function codeqWorker(url: string): CodeqWorker {
  const client = new WorkerStreamClient(url, credentials.createInsecure(), OPTIONS);
  return new StreamClient(client, client.stream());
}

export type TidemillWorker = StreamClient<FromWorker, ToWorker>;

export function tidemillWorker(url: string): TidemillWorker {
  const client = new TidemillWorkerClient(url, credentials.createInsecure(), OPTIONS);
  return new StreamClient(client, client.stream());
}

export { status };
