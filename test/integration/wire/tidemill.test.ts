import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import {
  FromProducer,
  ProducerStreamService,
  ToProducer,
} from "../../../src/wire/generated/tidemill/v1/producer.ts";
import {
  FromWorker,
  ToWorker,
  WorkerStreamService,
} from "../../../src/wire/generated/tidemill/v1/worker.ts";

const PROTO = fileURLToPath(new URL("../../../proto", import.meta.url));

/** The text form, turned into bytes by protoc's own codec. */
function byProtoc(type: string, file: string, text: string): Buffer {
  const compiler = createRequire(import.meta.url).resolve("protoc/package.json");
  return execFileSync(
    process.execPath,
    [
      join(compiler, "../protoc.cjs"),
      `--encode=tidemill.v1.${type}`,
      `--proto_path=${PROTO}`,
      file,
    ],
    { input: text },
  );
}

const WORKER = "tidemill/v1/worker.proto";
const PRODUCER = "tidemill/v1/producer.proto";
const TOKEN = { taskId: "9007199254740993", generation: 4_294_967_295, claimId: "c" };
const TOKEN_TEXT = 'task_id: "9007199254740993" generation: 4294967295 claim_id: "c"';

describe("the streams of Tidemill", () => {
  it("are found under their own names", () => {
    expect(WorkerStreamService.stream.path).toBe("/tidemill.v1.WorkerStream/Stream");
    expect(ProducerStreamService.stream.path).toBe("/tidemill.v1.ProducerStream/Stream");
  });

  it("a task carries its whole lease", () => {
    const bytes = byProtoc(
      "ToWorker",
      WORKER,
      `tasks { tasks {
         lease { token { ${TOKEN_TEXT} } lease_until { seconds: 60 } remaining_ms: 30000 }
         queue: "mail" payload: "\\000\\377" content_type: "application/octet-stream"
         partition_key: "order:1" attempt: 1 max_attempts: 5 priority: 9 tenant: "acme"
         trace_parent: "00-1" timeout_seconds: 0.5 } }`,
    );
    const message = ToWorker.decode(bytes);
    expect(message).toMatchObject({
      message: {
        $case: "tasks",
        value: {
          tasks: [
            {
              lease: { token: TOKEN, leaseUntil: new Date(60_000), remainingMs: 30_000 },
              queue: "mail",
              payload: Buffer.from([0, 255]),
              partitionKey: "order:1",
              attempt: 1,
              maxAttempts: 5,
              priority: 9,
              tenant: "acme",
              timeoutSeconds: 0.5,
            },
          ],
        },
      },
    });
    expect(Buffer.from(ToWorker.encode(message).finish())).toEqual(bytes);
  });

  it("tells a completion without a result from one with an empty one", () => {
    const text = `acts { request_id: 18446744073709551615
      acts { token { ${TOKEN_TEXT} } complete {} }
      acts { token { ${TOKEN_TEXT} } complete { result_json: "" } }
      acts { token { ${TOKEN_TEXT} } abandon {} } }`;
    const bytes = byProtoc("FromWorker", WORKER, text);
    const message = FromWorker.decode(bytes);
    expect(message.message).toEqual({
      $case: "acts",
      value: {
        requestId: 2n ** 64n - 1n,
        acts: [
          { token: TOKEN, act: { $case: "complete", value: { resultJson: undefined } } },
          { token: TOKEN, act: { $case: "complete", value: { resultJson: Buffer.alloc(0) } } },
          { token: TOKEN, act: { $case: "abandon", value: {} } },
        ],
      },
    });
    expect(Buffer.from(FromWorker.encode(message).finish())).toEqual(bytes);
  });

  it("tells the lowest priority from none", () => {
    const bytes = byProtoc(
      "FromProducer",
      PRODUCER,
      'create { seq: 7 is_atomic: true tasks { queue: "a" priority: 0 } tasks { queue: "b" } }',
    );
    const message = FromProducer.decode(bytes);
    expect(message).toMatchObject({
      message: {
        $case: "create",
        value: {
          seq: 7n,
          isAtomic: true,
          tasks: [
            { queue: "a", priority: 0 },
            { queue: "b", priority: undefined },
          ],
        },
      },
    });
    expect(Buffer.from(FromProducer.encode(message).finish())).toEqual(bytes);
  });

  it("answers each task of a create with an id or a failure", () => {
    const bytes = byProtoc(
      "ToProducer",
      PRODUCER,
      `create_ack { seq: 7 results { task_id: "42" }
         results { failure { code: "TM_INVALID_INPUT" message: "no" retry_after_ms: 5 } } }`,
    );
    const message = ToProducer.decode(bytes);
    expect(message.message?.value).toEqual({
      seq: 7n,
      results: [
        { result: { $case: "taskId", value: "42" } },
        {
          result: {
            $case: "failure",
            value: { code: "TM_INVALID_INPUT", message: "no", retryable: false, retryAfterMs: 5 },
          },
        },
      ],
    });
    expect(Buffer.from(ToProducer.encode(message).finish())).toEqual(bytes);
  });
});
