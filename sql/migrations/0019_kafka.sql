-- Ingest from Kafka. docs/how-to/ingest-from-kafka.md, docs/adr/0019-kafka.md.

-- How far each partition has become tasks. The next offset is compared and set in the transaction that
-- stores what the messages before it became, so it is right whatever else happens; what Kafka knows of
-- the group is for its tools. A topic that was deleted and made again has another id, and other rows.
CREATE TABLE {schema}.kafka_offsets (
    source      TEXT NOT NULL CHECK (octet_length(source) BETWEEN 1 AND 200),
    topic_id    UUID NOT NULL,
    "partition" INT NOT NULL CHECK ("partition" >= 0),
    topic       TEXT NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 249),
    next_offset BIGINT NOT NULL CHECK (next_offset >= 0),
    created_at  TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at  TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (source, topic_id, "partition")
) WITH (fillfactor = 50); -- Rewritten all the time, and no index has a column that changes.
CREATE INDEX kafka_offsets_topic_idx ON {schema}.kafka_offsets (source, topic);

-- Messages that cannot become tasks, with everything that is needed to try again.
CREATE TABLE {schema}.kafka_dead_messages (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source         TEXT NOT NULL CHECK (octet_length(source) BETWEEN 1 AND 200),
    topic_id       UUID NOT NULL,
    "partition"    INT NOT NULL,
    message_offset BIGINT NOT NULL,
    topic          TEXT NOT NULL,
    reason         TEXT NOT NULL,
    key            BYTEA,
    value          BYTEA,
    -- A list of { name, value }, values in base64: names may come twice, and values are bytes.
    headers        JSONB NOT NULL,
    message_at     TIMESTAMPTZ,
    created_at     TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
-- Not unique: who sets an offset back buries a message again, and that must not stop the partition.
CREATE INDEX kafka_dead_messages_place_idx ON {schema}.kafka_dead_messages
    (source, topic_id, "partition", message_offset);
CREATE INDEX kafka_dead_messages_created_idx ON {schema}.kafka_dead_messages (source, created_at);
