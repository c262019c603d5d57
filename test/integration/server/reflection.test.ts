import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { credentials, Metadata } from "@grpc/grpc-js";
import { expect, it } from "vitest";
import {
  ServerReflectionClient,
  ServerReflectionRequest,
  ServerReflectionResponse,
} from "../../../src/wire/generated/grpc/reflection/v1/reflection.ts";
import { onCleanup } from "../../support/database.ts";
import { StreamClient, status } from "../../support/stream-client.ts";
import { scene } from "./scene.ts";

type Asked = NonNullable<ServerReflectionRequest["messageRequest"]>;
type Reflection = StreamClient<ServerReflectionRequest, ServerReflectionResponse>;

const PATH = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

function reflection(url: string, path = PATH): Reflection {
  const client = new ServerReflectionClient(url, credentials.createInsecure());
  const encode = (message: ServerReflectionRequest): Buffer =>
    Buffer.from(ServerReflectionRequest.encode(message).finish());
  const decode = (bytes: Buffer): ServerReflectionResponse =>
    ServerReflectionResponse.decode(bytes);
  const call = client.makeBidiStreamRequest(path, encode, decode, new Metadata(), {});
  const stream = new StreamClient<ServerReflectionRequest, ServerReflectionResponse>(client, call);
  onCleanup(() => Promise.resolve(stream.close()));
  return stream;
}

async function ask(
  stream: Reflection,
  messageRequest: Asked,
): Promise<ServerReflectionResponse["messageResponse"]> {
  const before = stream.received.length;
  stream.send({ host: "", messageRequest });
  await stream.until(before + 1);
  return stream.received[before]?.messageResponse;
}

const list: Asked = { $case: "listServices", value: "*" };

/** The names of the files of an answer, the one that was asked for first. */
function filesOf(answer: ServerReflectionResponse["messageResponse"]): string[] {
  if (answer?.$case !== "fileDescriptorResponse") throw new Error(JSON.stringify(answer));
  return answer.value.fileDescriptorProto.map(
    (bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name,
  );
}

it("tells what each port serves, by both names of the protocol, and nothing unasked", async () => {
  const { url, server } = await scene({ server: { reflection: true, worker: { port: 0 } } });
  const worker = `127.0.0.1:${server.address("worker").port}`;
  const common = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
  const named = (...names: string[]): unknown => ({
    $case: "listServicesResponse",
    value: { service: [...common, ...names].toSorted().map((name) => ({ name })) },
  });
  const producers = reflection(url);
  expect(await ask(producers, list)).toEqual(
    named("producerpb.ProducerStream", "tidemill.v1.ProducerStream"),
  );
  const old = reflection(worker, PATH.replace("v1", "v1alpha"));
  expect(await ask(old, list)).toEqual(named("tidemill.v1.WorkerStream", "workerpb.WorkerStream"));
  // Every service that is listed can be looked at.
  for (const name of [...common, "tidemill.v1.ProducerStream", "producerpb.ProducerStream"]) {
    const files = filesOf(await ask(producers, { $case: "fileContainingSymbol", value: name }));
    expect(files[0]).toMatch(/\.proto$/);
  }
  const symbol = "tidemill.v1.ProducerStream.Stream";
  const found = await ask(producers, { $case: "fileContainingSymbol", value: symbol });
  expect(filesOf(found).toSorted()).toEqual([
    "google/protobuf/timestamp.proto",
    "tidemill/v1/producer.proto",
    "tidemill/v1/stream.proto",
  ]);
  const file: Asked = { $case: "fileByFilename", value: "google/protobuf/timestamp.proto" };
  expect(filesOf(await ask(producers, file))).toEqual(["google/protobuf/timestamp.proto"]);
  producers.call.end();
  expect(await producers.ended).toMatchObject({ code: status.OK });
});

it("says what it does not have", async () => {
  const { url } = await scene({ server: { reflection: true } });
  const stream = reflection(url);
  const missing = (errorMessage: string): unknown => ({
    $case: "errorResponse",
    value: { errorCode: status.NOT_FOUND, errorMessage },
  });
  expect(await ask(stream, { $case: "fileContainingSymbol", value: "no.Such" })).toEqual(
    missing('no symbol "no.Such"'),
  );
  expect(await ask(stream, { $case: "fileByFilename", value: "../../etc/passwd" })).toEqual(
    missing('no file "../../etc/passwd"'),
  );
  expect(await ask(stream, { $case: "allExtensionNumbersOfType", value: "no.Such" })).toEqual(
    missing('no symbol "no.Such"'),
  );
  const extension = { containingType: "tidemill.v1.NewTask", extensionNumber: 7 };
  expect(await ask(stream, { $case: "fileContainingExtension", value: extension })).toEqual(
    missing("there are no extensions"),
  );
  const type: Asked = { $case: "allExtensionNumbersOfType", value: "tidemill.v1.NewTask" };
  expect(await ask(stream, type)).toEqual({
    $case: "allExtensionNumbersResponse",
    value: { baseTypeName: "tidemill.v1.NewTask", extensionNumber: [] },
  });
});

it("is not there unless it is asked for, and never stays longer than a stranger", async () => {
  const { url, database } = await scene();
  const refused = reflection(url);
  refused.send({ host: "", messageRequest: list });
  expect(await refused.ended).toMatchObject({ code: status.UNIMPLEMENTED });
  const { url: other } = await scene({
    database,
    server: { reflection: true, helloSeconds: 1, strangersMax: 1 }, // Both come within it.
  });
  const [first, second] = [reflection(other), reflection(other)];
  const ends = await Promise.all([first.ended, second.ended]);
  expect(new Set(ends.map(({ code }) => code))).toEqual(
    new Set([status.DEADLINE_EXCEEDED, status.UNAVAILABLE]),
  );
});
