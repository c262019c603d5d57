import {
  ServerEvent,
  WorkerEvent,
  WorkerStreamService,
} from "../../wire/generated/codeq/worker.ts";
import { type StreamRoute, streamRoute } from "../grpc/listener.ts";
import type { MessageShape } from "../grpc/measure.ts";
import type { Codec } from "../grpc/peer.ts";
import { CodeqWorkerStream, type WorkerStreamOptions } from "./codeq-stream.ts";

const SHAPE: MessageShape = {
  1: { fields: {} },
  2: { fields: { 1: { isEntry: true } } },
  3: { fields: {} },
  4: { fields: {} },
  5: { fields: {} },
  6: { fields: {} },
  7: { fields: { 1: { isEntry: true, fields: {} } } },
};

const CODEQ: Codec<WorkerEvent, ServerEvent> = {
  shape: SHAPE,
  decode: (bytes) => WorkerEvent.decode(bytes),
  encode: (message) => ServerEvent.encode(message).finish(),
};

/** The streams of workers. */
export function workerRoutes(options: WorkerStreamOptions): readonly StreamRoute[] {
  const { path } = WorkerStreamService.stream;
  return [streamRoute(path, CODEQ, (peer) => new CodeqWorkerStream(peer, options))];
}
