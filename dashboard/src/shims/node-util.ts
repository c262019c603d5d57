/** What src/base/options.ts takes of node:util, for messages about wrong options. */
export const inspect = (value: unknown): string => JSON.stringify(value) ?? String(value);
