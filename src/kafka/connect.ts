import { ConfigError } from "../base/errors.ts";
import {
  type KafkaOptions,
  type ResolvedKafkaOptions,
  resolveKafkaOptions,
} from "./connect-options.ts";
import type { KafkaClient } from "./source.ts";

/**
 * A client of a Kafka cluster, by whichever package is installed. Connects when it is first used.
 * Whoever makes it closes it, after what uses it.
 */
export async function connectKafka(options: KafkaOptions): Promise<KafkaClient> {
  const resolved = resolveKafkaOptions(options);
  return await (resolved.client === "kafkajs" ? useKafkaJs(resolved) : usePlatformatic(resolved));
}

async function usePlatformatic(options: ResolvedKafkaOptions): Promise<KafkaClient> {
  const { PlatformaticClient } = await import("./platformatic/client.ts");
  return await load("@platformatic/kafka", () => PlatformaticClient.open(options));
}

async function useKafkaJs(options: ResolvedKafkaOptions): Promise<KafkaClient> {
  const { KafkaJsClient } = await import("./kafkajs/client.ts");
  return await load("kafkajs", () => KafkaJsClient.open(options));
}

async function load(name: string, open: () => Promise<KafkaClient>): Promise<KafkaClient> {
  try {
    return await open();
  } catch (error) {
    if ((error as { code?: unknown }).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new ConfigError(`the package ${name} is not installed: npm install ${name}`, {
      cause: error,
    });
  }
}
