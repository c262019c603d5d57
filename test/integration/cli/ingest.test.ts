import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "vitest";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { expectAllRefused, type Refusal } from "./refused.ts";

const KAFKA = { brokers: ["127.0.0.1:1"], requestSeconds: 1 };

it("tidemill ingest kafka and publish kafka refuse what cannot work, and say why", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-config-"));
  onCleanup(async () => rmSync(folder, { recursive: true }));
  let files = 0;
  const withConfig = (config: string | object): string[] => {
    const file = join(folder, `${files++}.json`);
    writeFileSync(file, typeof config === "string" ? config : JSON.stringify(config));
    return ["ingest", "kafka", "--config", file];
  };
  const publishing = (config: object): string[] => [
    "publish",
    ...withConfig({ kafka: KAFKA, ...config }).slice(1),
  ];
  const ingest = { prefix: "a" };
  const refusals: Refusal[] = [
    [["ingest", "kafka"], 2, /--config/],
    [["ingest", "kafka", "--config", join(folder, "none")], 2, /cannot be read/],
    [withConfig("{ secret"), 2, /is not JSON$/m],
    [withConfig([]), 2, /must be an object/],
    [withConfig({ kafca: {} }), 2, /did you mean "kafka"\?/],
    [withConfig({ kafka: KAFKA }), 2, /must have "kafka" and "ingest"/],
    [withConfig({ kafka: KAFKA, ingest: { prefx: "a" } }), 2, /did you mean "prefix"\?/],
    [withConfig({ kafka: { ...KAFKA, ssl: true }, ingest }), 2, /unknown Kafka option "ssl"/],
    [withConfig({ kafka: KAFKA, ingest }), 1, /Kafka: describe topic a.jobs.high/],
    [["publish", "kafka"], 2, /--config/],
    [publishing({ ingest }), 2, /unknown config option "ingest"/],
    [publishing({ publish: { nam: "a", topic: "a" } }), 2, /did you mean "name"\?/],
    [publishing({ publish: { name: "a", topic: "a b" } }), 2, /topic must be the name/],
  ];
  await expectAllRefused(await testDatabase(), refusals);
});
