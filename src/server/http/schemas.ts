import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";
import { TARGET_LENGTH_MAX } from "../../tasks/http-call.ts";

/** A whole number in a query or a path. */
export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,18}$/, "must be a whole number")
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be from ${min} to ${max}`)
    .openapi({ type: "integer", minimum: min, maximum: max });

/** Positions and versions may be larger than a number of JavaScript. */
export const bigNumber = z
  .string()
  .regex(/^\d{1,18}$/, "must be a whole number")
  .transform(BigInt)
  .openapi({ type: "string", pattern: "^\\d{1,18}$", example: "4711" });

const NAME_MAX = 1_024;
export const name = z.string().min(1).max(NAME_MAX);
export const taskId = z
  .string()
  .regex(/^[1-9]\d{0,17}$/, 'a task id is a number such as "4711"')
  .openapi({ example: "4711" });

export const idParams = z.strictObject({ id: taskId });
export const nameParams = z.strictObject({ name });

export const reasonBody = z.strictObject({ reason: z.string().min(1).max(NAME_MAX).optional() });

export const limit = wholeNumber(1, 1_000).optional();

/** Any JSON. Kept letter by letter where an endpoint says so. */
export const anyJson = z.unknown().openapi({ description: "Any JSON" });

/** A payload as JSON, or as bytes. */
export const payloadFields = {
  payload: anyJson.optional(),
  payloadBase64: z
    .string()
    .optional()
    .openapi({ description: "The payload as bytes, instead of `payload`", format: "byte" }),
  contentType: z.string().min(1).max(NAME_MAX).optional().openapi({
    description: "Of bytes. Defaults to application/octet-stream.",
  }),
};

interface GivenPayload {
  readonly payload?: unknown;
  readonly payloadBase64?: string | undefined;
  readonly contentType?: string | undefined;
}

/** What is to be stored. None is null. */
export function payloadOf(given: GivenPayload): JsonText | Uint8Array {
  const { payload, payloadBase64, contentType } = given;
  if (payloadBase64 === undefined) {
    if (contentType !== undefined) {
      throw new InvalidInputError("contentType is for payloadBase64; a payload is JSON");
    }
    return payload instanceof JsonText ? payload : new JsonText("null");
  }
  if (payload !== undefined) {
    throw new InvalidInputError("give payload or payloadBase64, not both");
  }
  return bytesOf("payloadBase64", payloadBase64);
}

export function bytesOf(field: string, base64: string): Uint8Array {
  const bytes = Buffer.from(base64, "base64");
  if (bytes.toString("base64") === base64) return bytes;
  throw new InvalidInputError(`${field} is not base64 with its padding`);
}

export const priority = z.union([
  z.number().int().min(0).max(9),
  z.enum(["high", "normal", "low"]),
]);

export const backoff = z.strictObject({
  kind: z.enum(["fixed", "linear", "exponential", "equal-jitter", "full-jitter"]).optional(),
  baseSeconds: z.number().min(0).optional(),
  maxSeconds: z.number().min(0).optional(),
});

/** What a task of an `http` queue calls. Its text is checked where it is stored. */
export const httpCall = z
  .strictObject({
    targetUrl: z.string().min(1).max(TARGET_LENGTH_MAX).optional(),
    method: z.enum(["POST", "PUT", "PATCH", "DELETE", "GET"]).optional(),
    headers: z.record(z.string(), z.string()).optional(),
    expectedStatus: z
      .union([z.number().int(), z.array(z.number().int())])
      .optional()
      .openapi({ description: "The only answers that complete the task. Defaults to any 2xx." }),
    endpoint: z.string().max(64).optional().openapi({
      description: "The webhook endpoint whose secret signs the call. Defaults to default.",
    }),
  })
  .openapi("HttpCall", { description: "For tasks of queues of kind http" });

/** A date as ISO 8601 has it, with its offset. */
export const instant = z.iso
  .datetime({ offset: true })
  .openapi({ example: "2026-01-31T09:00:00Z" });
