import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { NewTask } from "../../wire/generated/tidemill/v1/producer.ts";
import type { Link } from "../link.ts";
import type { Call } from "./calls.ts";

/** A task that has not been answered. */
export interface PendingTask {
  readonly message: NewTask;
  /** No less than its bytes in a message. */
  readonly weight: number;
  readonly call: Call;
  /** Within its call. */
  readonly place: number;
}

/** A create that was sent. Nothing about it changes: the places of its tasks are their keys. */
export interface SentCreate {
  readonly seq: bigint;
  readonly bytes: Uint8Array;
  readonly tasks: readonly PendingTask[];
  /** By which it was sent last. Undefined: it is to be sent again. */
  link: Link | undefined;
  /** How often the server refused it for a passing reason. */
  refusals: number;
  /** Not before, after a refusal. */
  notBeforeMs: number;
}

// Numbers of fields and wire types, as in proto/tidemill/v1/producer.proto.
const CREATE = (2 << 3) | 2;
const SEQ = 1 << 3;
const TASK = (2 << 3) | 2;
const IS_ATOMIC = 3 << 3;

/** The message of a create, written once and kept for when it must be sent again. */
export function writeCreate(
  seq: bigint,
  tasks: readonly PendingTask[],
  isAtomic: boolean,
): Uint8Array {
  const writer = new BinaryWriter();
  writer.uint32(CREATE).fork();
  writer.uint32(SEQ).uint64(seq);
  for (const { message } of tasks) NewTask.encode(message, writer.uint32(TASK).fork()).join();
  if (isAtomic) writer.uint32(IS_ATOMIC).bool(true);
  return writer.join().finish();
}
