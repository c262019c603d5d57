-- Who is there, who leads and who runs what. The first three tables are eventsalsa/worker's.
CREATE TABLE IF NOT EXISTS {worker_nodes} (
    worker_id    UUID PRIMARY KEY,
    heartbeat_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX IF NOT EXISTS {worker_nodes_heartbeat_idx} ON {worker_nodes} (heartbeat_at);

CREATE TABLE IF NOT EXISTS {consumer_assignments} (
    consumer_name TEXT PRIMARY KEY,
    worker_id     UUID REFERENCES {worker_nodes} (worker_id) ON DELETE SET NULL,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX IF NOT EXISTS {consumer_assignments_worker_idx}
    ON {consumer_assignments} (worker_id);

CREATE TABLE IF NOT EXISTS {worker_leader_election} (
    lease_key  TEXT PRIMARY KEY,
    leader_id  UUID REFERENCES {worker_nodes} (worker_id) ON DELETE CASCADE,
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

-- What a worker says of itself, beside its registration; kept a day after it ended.
CREATE TABLE {schema}.worker_info (
    worker_id    UUID PRIMARY KEY,
    status       TEXT NOT NULL CHECK (status IN ('active', 'draining', 'stopped', 'dead')),
    host         TEXT NOT NULL,
    pid          INT NOT NULL,
    version      TEXT NOT NULL,
    capabilities TEXT[] NOT NULL,
    load         JSONB NOT NULL DEFAULT '{}',
    started_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    last_seen_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    ended_at     TIMESTAMPTZ
);

-- One row. The term grows with every change of leader; every leader write locks and compares it.
CREATE TABLE {schema}.leader_term (
    id          INT PRIMARY KEY CHECK (id = 1),
    term        BIGINT NOT NULL,
    leader_id   UUID,
    acquired_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.leader_term VALUES (1, 0, NULL, NOW());

-- One row. Its version grows with every change of membership, assignment or consumer state, so
-- that a worker without LISTEN learns of changes from one cheap read.
CREATE TABLE {schema}.cluster_changes (
    id      INT PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.cluster_changes VALUES (1, 0);
