import { constants } from "node:http2";

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

/**
 * Resets the HTTP/2 stream of a call, for a client that takes nothing any more: its status would
 * wait behind what it does not read, as long as its connection lasts. grpc-js has no way to do
 * this, so that its insides are looked into; should they change, the stream stays and a test fails.
 */
export function resetCall(call: object): void {
  let inner: unknown = Reflect.get(call, "call");
  while (isObject(inner) && isObject(Reflect.get(inner, "nextCall"))) {
    inner = Reflect.get(inner, "nextCall");
  }
  const stream: unknown = isObject(inner) ? Reflect.get(inner, "stream") : undefined;
  if (!isObject(stream)) return;
  const close: unknown = Reflect.get(stream, "close");
  if (typeof close === "function") close.call(stream, constants.NGHTTP2_CANCEL);
}
