-- Keys with which programs call the server. Only a hash is kept: a key is 256 random bits, which nobody
-- finds by trying, so a fast hash is enough. What a key may do never changes; another takes its place.
CREATE TABLE {schema}.api_keys (
    id           TEXT PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
    tenant       TEXT NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    name         TEXT CHECK (octet_length(name) BETWEEN 1 AND 200),
    scopes       TEXT[] NOT NULL CHECK (cardinality(scopes) > 0),
    -- NULL for all of them.
    queues       TEXT[] CHECK (cardinality(queues) > 0),
    -- SHA-256 of the whole key as it was printed.
    hash         BYTEA NOT NULL CHECK (octet_length(hash) = 32),
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    -- NULL for never.
    expires_at   TIMESTAMPTZ CHECK (expires_at > created_at),
    revoked_at   TIMESTAMPTZ,
    -- To the minute.
    last_used_at TIMESTAMPTZ
);
