/** Creates of one stream without an answer. */
export const CREATES_MAX = 256;
/** Tasks in one create, as it is told to clients. */
export const TASKS_MAX = 1_000;
/** Entries in one message; more are not even decoded. */
export const ENTRIES_MAX = 2_000;
/** A create of as many entries, each with every field a few times. */
export const FIELDS_MAX = 30 * ENTRIES_MAX;
/** Of one stream, from when a message is decoded until it is answered. */
export const STREAM_BYTES_MAX = 8 * 1024 * 1024;
/** A token, a name and little more. */
export const HELLO_BYTES_MAX = 64 * 1024;
/** A transaction has at most so much, unless one create alone has more. */
export const COMMIT_BYTES_MAX = 4 * 1024 * 1024;
export const COMMIT_TASKS_MAX = 2_000;
/** Acks that wait for a client to read them. */
export const ACK_BYTES_MAX = 8 * 1024 * 1024;
/** Acks in one message are cut here, far below what a message may have. */
export const ACK_BATCH_BYTES = 1024 * 1024;

/** What a task costs beside its bytes. */
const TASK_BYTES = 512;

/** What a message weighs while it is under way: its bytes, what is made of them, and objects. */
export function weightOf(bytes: number, entries: number): number {
  return 2 * bytes + TASK_BYTES * (1 + entries);
}
