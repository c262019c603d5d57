import { storable } from "../base/errors.ts";
import type { KafkaHeader } from "./source.ts";

export const header = (name: string, value: string): KafkaHeader => ({
  name,
  value: Buffer.from(value),
});

/** As they are in a table: names may come twice, and values are bytes. */
export const headersJson = (headers: readonly KafkaHeader[]): string =>
  JSON.stringify(
    headers.map(({ name, value }) => ({ name: storable(name), value: value.toString("base64") })),
  );

export const readHeaders = (
  stored: readonly { readonly name: string; readonly value: string }[],
): KafkaHeader[] =>
  stored.map(({ name, value }) => ({ name, value: Buffer.from(value, "base64") }));

const TOPIC = /^[A-Za-z0-9._-]{1,249}$/;

export const isTopic = (name: unknown): name is string =>
  typeof name === "string" && TOPIC.test(name) && name !== "." && name !== "..";
