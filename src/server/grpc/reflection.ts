import { status } from "@grpc/grpc-js";
import { DESCRIPTORS } from "../../wire/generated/descriptors.ts";
import {
  ServerReflectionRequest,
  ServerReflectionResponse,
} from "../../wire/generated/grpc/reflection/v1/reflection.ts";
import { type StreamRoute, streamRoute } from "./listener.ts";
import type { Codec, Peer, PeerHandler } from "./peer.ts";

type Request = ServerReflectionRequest;
type Response = ServerReflectionResponse;
type Answer = NonNullable<Response["messageResponse"]>;

const NAME = "grpc.reflection.v1.ServerReflection";
const METHOD = "ServerReflectionInfo";
/** The older name of the same protocol, which some clients still ask by. It is not listed. */
const OLD_NAME = "grpc.reflection.v1alpha.ServerReflection";
const HEALTH = "grpc.health.v1.Health";

const CODEC: Codec<Request, Response> = {
  shape: {},
  decode: (bytes) => ServerReflectionRequest.decode(bytes),
  encode: (message) => ServerReflectionResponse.encode(message).finish(),
};

/** Files by their names, and the name of the file that declares each symbol. */
const FILES = new Map(DESCRIPTORS.map((file) => [file.name, file]));
const DECLARED = new Map(
  DESCRIPTORS.flatMap(({ name, symbols }) => symbols.map((symbol) => [symbol, name] as const)),
);

/** Tells anybody what is served beside it: names and messages, which proto/ publishes anyway. */
export function reflectionRoutes(served: readonly StreamRoute[]): readonly StreamRoute[] {
  const names = served.map(({ path }) => path.split("/")[1] ?? "");
  const services = [...names, HEALTH, NAME].toSorted();
  return [NAME, OLD_NAME].map((name) =>
    streamRoute(`/${name}/${METHOD}`, CODEC, (peer) => new ReflectionStream(peer, services)),
  );
}

/**
 * Whoever asks has no token, so it stays a stranger: its stream counts as one that has not said
 * hello, and ends as late as one.
 */
class ReflectionStream implements PeerHandler<Request> {
  readonly #peer: Peer<Request, Response>;
  readonly #services: readonly string[];

  constructor(peer: Peer<Request, Response>, services: readonly string[]) {
    this.#peer = peer;
    this.#services = services;
  }

  admit(): void {}

  onMessage(request: Request): void {
    this.#peer.send({
      validHost: request.host,
      originalRequest: request,
      messageResponse: answerTo(request, this.#services),
    });
  }

  onHalfClose(): void {
    this.#peer.end(status.OK);
  }

  onDrain(): void {
    this.#peer.end(status.UNAVAILABLE, "the server is stopping");
  }

  onOver(): void {}
}

/** What a server that has these services says. */
export function answerTo({ messageRequest: asked }: Request, services: readonly string[]): Answer {
  switch (asked?.$case) {
    case "listServices": {
      const service = services.map((name) => ({ name }));
      return { $case: "listServicesResponse", value: { service } };
    }
    case "fileByFilename":
      return fileAnswer(asked.value, `no file ${quoted(asked.value)}`);
    case "fileContainingSymbol":
      return fileAnswer(DECLARED.get(asked.value), `no symbol ${quoted(asked.value)}`);
    case "allExtensionNumbersOfType":
      if (!DECLARED.has(asked.value)) return notFound(`no symbol ${quoted(asked.value)}`);
      return {
        $case: "allExtensionNumbersResponse",
        value: { baseTypeName: asked.value, extensionNumber: [] },
      };
    case "fileContainingExtension":
      return notFound("there are no extensions");
    default:
      return {
        $case: "errorResponse",
        value: { errorCode: status.INVALID_ARGUMENT, errorMessage: "nothing was asked for" },
      };
  }
}

/** With all that it imports, so that nothing has to be asked for again. */
function fileAnswer(name: string | undefined, otherwise: string): Answer {
  if (name === undefined || !FILES.has(name)) return notFound(otherwise);
  const names = new Set([name]);
  // What is added to a set while it is walked is walked as well.
  for (const one of names) for (const next of FILES.get(one)?.imports ?? []) names.add(next);
  const fileDescriptorProto = [...names].flatMap((one) => {
    const file = FILES.get(one);
    return file === undefined ? [] : [Buffer.from(file.proto, "base64")];
  });
  return { $case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

const NAME_LENGTH_MAX = 200;
const quoted = (name: string): string => JSON.stringify(name.slice(0, NAME_LENGTH_MAX));

const notFound = (errorMessage: string): Answer => ({
  $case: "errorResponse",
  value: { errorCode: status.NOT_FOUND, errorMessage },
});
