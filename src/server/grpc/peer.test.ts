import { credentials, Metadata, makeClientConstructor, status } from "@grpc/grpc-js";
import { expect, it } from "vitest";
import { StreamClient } from "../../../test/support/stream-client.ts";
import { systemClock } from "../../base/clock.ts";
import { GrpcListener, streamRoute } from "./listener.ts";
import type { Codec } from "./peer.ts";

const PATH = "/echo.Echo/Stream";
const identity = (bytes: Buffer): Buffer => bytes;
const NOTHING = (): void => {};

/** A number in field 1; there is no way to write two. */
const NUMBERS: Codec<number, number> = {
  shape: {},
  decode: (bytes) => bytes[1] ?? 0,
  encode(number) {
    if (number === 2) throw new Error("no number of this field");
    return Buffer.from([0x08, number]);
  },
};

async function listener(errors: string[]): Promise<GrpcListener> {
  const note = (_fields: object, message: string): void => void errors.push(message);
  const echo = streamRoute(PATH, NUMBERS, (peer) => ({
    admit: NOTHING,
    onMessage: (number) => void setImmediate(() => peer.send(number)), // As an answer comes.
    onHalfClose: NOTHING,
    onDrain: NOTHING,
    onOver: NOTHING,
  }));
  const options = {
    name: "echo",
    host: "127.0.0.1",
    port: 0,
    tls: undefined,
    clock: systemClock,
    logger: { debug: NOTHING, info: NOTHING, warn: NOTHING, error: note },
    limits: { entriesMax: 10, fieldsMax: 10 },
    helloMs: 10_000,
    endMs: 1_000,
    stallMs: 10_000,
    writeBytesMax: 1_000,
    keepaliveMs: 60_000,
    keepaliveTimeoutMs: 10_000,
    connectionStreamsMax: 10,
    streamsMax: 10,
    strangersMax: 10,
    strangersPerAddressMax: 10,
    streamsPerTenantMax: 10,
    drainMs: 100,
    onCount: NOTHING,
  };
  const listening = new GrpcListener(options, [echo]);
  await listening.listen();
  return listening;
}

function open({ port }: { readonly port: number }): StreamClient<Buffer, Buffer> {
  const Client = makeClientConstructor({}, "echo");
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  const call = client.makeBidiStreamRequest(PATH, identity, identity, new Metadata(), {});
  return new StreamClient<Buffer, Buffer>(client, call);
}

it("ends the stream, and no other, for what cannot be written", async () => {
  const errors: string[] = [];
  const listening = await listener(errors);
  const [one, other] = [open(listening.address), open(listening.address)];
  try {
    one.send(Buffer.from([0x08, 2]));
    expect(await one.ended).toEqual({ code: status.INTERNAL, details: "internal error" });
    other.send(Buffer.from([0x08, 1]));
    expect(await other.until(1)).toEqual([Buffer.from([0x08, 1])]);
    expect(errors).toEqual(["a stream failed"]);
  } finally {
    one.close();
    other.close();
    listening.close();
  }
});
