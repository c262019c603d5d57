import { InvalidInputError } from "../base/errors.ts";

/**
 * A validator that follows Standard Schema, version 1: zod, valibot, arktype and others do. Only
 * what is called here is spelled out, so that no library of them is needed.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (
      value: unknown,
    ) => StandardResult<Output> | PromiseLike<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type InputOf<Schema> = Schema extends StandardSchema<infer Input, unknown> ? Input : never;
export type OutputOf<Schema> =
  Schema extends StandardSchema<infer _, infer Output> ? Output : never;

/** The value as the schema gives it. Refuses what does not fit, and says where. */
export async function validated<Output>(
  schema: StandardSchema<unknown, Output>,
  value: unknown,
  what: string,
): Promise<Output> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return result.value;
  throw new InvalidInputError(`${what} does not fit its schema: ${describeIssues(result.issues)}`);
}

const ISSUES_MAX = 5;

export function describeIssues(issues: readonly StandardIssue[]): string {
  const shown = issues.slice(0, ISSUES_MAX).map(({ message, path = [] }) => {
    const keys = path.map((step) => String(typeof step === "object" ? step.key : step));
    return keys.length === 0 ? message : `${keys.join(".")}: ${message}`;
  });
  const more = issues.length - shown.length;
  return shown.join("; ") + (more > 0 ? `; and ${more} more` : "");
}
