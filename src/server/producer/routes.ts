import { type StreamRoute, streamRoute } from "../grpc/listener.ts";
import { codeqDialect } from "./codeq.ts";
import type { ProducerDialect } from "./dialect.ts";
import { type ProducerKit, ProducerStream } from "./producer-stream.ts";
import { tidemillDialect } from "./tidemill.ts";

/** The streams of producers, in every dialect. */
export function producerRoutes(kit: ProducerKit): readonly StreamRoute[] {
  return [routeOf(codeqDialect, kit), routeOf(tidemillDialect, kit)];
}

function routeOf<In, Out>(dialect: ProducerDialect<In, Out>, kit: ProducerKit): StreamRoute {
  const { path, codec } = dialect;
  return streamRoute(path, codec, (peer) => new ProducerStream(peer, dialect, kit));
}
