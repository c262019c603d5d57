/** A header of a message: names may come twice. */
export interface KafkaHeader {
  readonly name: string;
  readonly value: Buffer;
}

export interface KafkaMessage {
  readonly offset: bigint;
  readonly key: Buffer | undefined;
  /** Undefined for a tombstone. */
  readonly value: Buffer | undefined;
  readonly headers: readonly KafkaHeader[];
  readonly timestampMs: number | undefined;
}

/** The answer to one fetch of one partition. */
export interface FetchedBatch {
  readonly partition: number;
  /** What was asked for. Nothing between it and `nextOffset` is left out but what is no message. */
  readonly fetchedOffset: bigint;
  /** Where the next fetch goes on. */
  readonly nextOffset: bigint;
  /** Ascending. Some may lie before `fetchedOffset`, where a batch of the log began. */
  readonly messages: readonly KafkaMessage[];
  /** The offset that the next message of the partition will get. */
  readonly endOffset: bigint;
}

export interface TopicDescription {
  /** A UUID that a topic of the same name, made again, does not have. */
  readonly topicId: string;
  readonly partitions: number;
}

/** What Kafka still has of a partition. */
export interface OffsetRange {
  readonly earliest: bigint;
  /** The offset that the next message will get. */
  readonly latest: bigint;
}

export interface NewTopic {
  readonly topic: string;
  readonly partitions: number;
  readonly replicas: number;
}

/** What a member of a group tells. Nothing of it is waited for. */
export interface MemberListener {
  /** All partitions that are held from now on. Each rests until it is told where to begin. */
  readonly onAssigned: (partitions: readonly number[]) => void;
  readonly onBatch: (batch: FetchedBatch) => void;
  /** The offset that was asked for is not there: too old, or the log is shorter than it was. */
  readonly onOutOfRange: (partition: number, offset: bigint) => void;
  /** It cannot go on, and is to be left: the broker is away, or the topic is another one. */
  readonly onFailure: (error: unknown) => void;
}

export interface Subscription {
  readonly groupId: string;
  readonly topic: string;
  readonly topicId: string;
  /** Of one fetch of one partition. A larger message comes alone. */
  readonly fetchBytes: number;
  readonly sessionTimeoutMs: number;
  readonly listener: MemberListener;
}

/** One member of a group, of one topic. */
export interface Membership {
  /** Where to fetch from; what is under way for another place is forgotten. Ends a pause. */
  seek(partition: number, offset: bigint): void;
  pause(partition: number): void;
  resume(partition: number): void;
  /** Tells the group, for tools that show its lag. Nobody relies on it. */
  commit(offsets: ReadonlyMap<number, bigint>): Promise<void>;
  leave(): Promise<void>;
}

/**
 * What the ingest needs of a Kafka client. Positions are not its business: they are kept in
 * PostgreSQL, and every batch says what was asked for.
 */
export interface KafkaSource {
  /**
   * Whether the ids of topics are Kafka's own, and fetches name them: only so a topic that was made
   * again is never taken for the old one.
   */
  readonly knowsTopicIds: boolean;
  /** Those that exist. */
  describeTopics(topics: readonly string[]): Promise<ReadonlyMap<string, TopicDescription>>;
  /** One that somebody else made meanwhile is no failure. */
  createTopics(topics: readonly NewTopic[]): Promise<void>;
  listOffsets(topic: string, partitions: number): Promise<readonly OffsetRange[]>;
  join(subscription: Subscription): Promise<Membership>;
  /** When nothing uses it any more. Does not wait for long for a broker that says nothing. */
  close(): Promise<void>;
}

export interface OutgoingMessage {
  readonly topic: string;
  readonly key: Buffer | undefined;
  readonly value: Buffer | undefined;
  readonly headers: readonly KafkaHeader[];
}

/** A message that no broker takes, however often it is sent. */
export interface RefusedMessage {
  readonly message: OutgoingMessage;
  readonly reason: string;
}

/** Where messages are published. */
export interface KafkaSink {
  /**
   * Resolves when all of them are stored by all replicas in sync, except for those that it gives,
   * which are refused for what they are: whoever publishes says what becomes of them. Messages of
   * one key are in the order of calls. After a failure any of them may be stored: publish them
   * again.
   */
  publish(messages: readonly OutgoingMessage[]): Promise<readonly RefusedMessage[]>;
}

/** A client of a cluster, for both ways. */
export interface KafkaClient extends KafkaSource, KafkaSink {}
