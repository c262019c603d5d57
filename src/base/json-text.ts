/**
 * JSON as somebody wrote it, kept as text: parsed and written again, a number of twenty digits
 * would be another one. Whoever makes one has seen that it is JSON.
 */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Parsed anew at every call. */
  get value(): unknown {
    return JSON.parse(this.text) as unknown;
  }

  /** For whoever writes it as part of something else without caring for its letters. */
  toJSON(): unknown {
    return this.value;
  }
}

/** As JSON.stringify, with every JsonText as it was written. */
export function writeJson(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  if (typeof value === "bigint") return JSON.stringify(String(value));
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(writeJson).join(",")}]`;
  if ("toJSON" in value && typeof value.toJSON === "function") return JSON.stringify(value);
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .map(([key, member]) => `${JSON.stringify(key)}:${writeJson(member)}`);
  return `{${members.join(",")}}`;
}
