import {
  ServerEvent,
  WorkerStreamService as WorkerStreamOfCodeq,
} from "../../wire/generated/codeq/worker.ts";
import {
  FromWorker,
  ToWorker,
  WorkerStreamService,
} from "../../wire/generated/tidemill/v1/worker.ts";
import { encoderOf } from "../grpc/encoder.ts";
import { type StreamRoute, streamRoute } from "../grpc/listener.ts";
import type { MessageShape } from "../grpc/measure.ts";
import type { Codec } from "../grpc/peer.ts";
import { readEvent, type Said, type Told } from "./codeq-batches.ts";
import { CodeqWorkerStream } from "./codeq-stream.ts";
import type { WorkerStreamOptions } from "./session.ts";
import { TidemillWorkerStream } from "./tidemill-stream.ts";

const CODEQ_SHAPE: MessageShape = {
  1: { fields: {} },
  2: { fields: { 1: { isEntry: true } } },
  3: { fields: {} },
  4: { fields: {} },
  5: { fields: {} },
  6: { fields: {} },
  7: { fields: { 1: { isEntry: true, fields: {} } } },
};

const encodeEvent = encoderOf(ServerEvent);
const CODEQ: Codec<Said, Told> = {
  shape: CODEQ_SHAPE,
  decode: readEvent,
  encode: (told) => (typeof told === "function" ? told() : encodeEvent(told)),
};

const TOKEN: MessageShape = {};
const ACT: MessageShape = {
  1: { fields: TOKEN },
  2: { fields: {} },
  3: { fields: {} },
  4: { fields: {} },
  5: { fields: {} },
  6: { fields: {} },
  7: { fields: {} },
};
const SHAPE: MessageShape = {
  1: {
    fields: {
      3: { fields: { 3: { isEntry: true } } },
      4: { isEntry: true },
      8: { fields: TOKEN }, // As many as fit: a hello is short, and fields are counted.
    },
  },
  2: { fields: { 3: { isEntry: true } } },
  3: { fields: { 2: { isEntry: true, fields: ACT } } },
  4: { fields: {} },
};

const TIDEMILL: Codec<FromWorker, ToWorker> = {
  shape: SHAPE,
  decode: (bytes) => FromWorker.decode(bytes),
  encode: encoderOf(ToWorker),
};

/** The streams of workers. */
export function workerRoutes(options: WorkerStreamOptions): readonly StreamRoute[] {
  return [
    streamRoute(
      WorkerStreamOfCodeq.stream.path,
      CODEQ,
      (peer) => new CodeqWorkerStream(peer, options),
    ),
    streamRoute(
      WorkerStreamService.stream.path,
      TIDEMILL,
      (peer) => new TidemillWorkerStream(peer, options),
    ),
  ];
}
