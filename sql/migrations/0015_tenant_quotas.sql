-- What one tenant may have waiting and running, and how fast it may create. docs/adr/0011 says why it
-- is kept in this way.
CREATE TABLE {schema}.tenant_quotas (
    tenant        TEXT PRIMARY KEY CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    pending_tasks BIGINT CHECK (pending_tasks >= 0),
    pending_bytes BIGINT CHECK (pending_bytes >= 0),
    rate_count    INT CHECK (rate_count > 0),
    rate_seconds  FLOAT8 CHECK (rate_seconds > 0),
    created_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK ((rate_count IS NULL) = (rate_seconds IS NULL))
);

-- What each server may still store for a tenant without asking, and has under way: it counts as used
-- for all others until it expires.
CREATE TABLE {schema}.tenant_grants (
    tenant     TEXT NOT NULL REFERENCES {schema}.tenant_quotas (tenant) ON DELETE CASCADE,
    server     UUID NOT NULL,
    number     BIGINT NOT NULL, -- Of the server's grants of this tenant.
    tasks      BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant, server)
);

-- Tasks of a tenant with a quota carry a mark, and only those are in here: what a tenant has is
-- counted without looking at anybody else's, and nobody else's tasks are written to an index. No
-- claim changes either column.
CREATE INDEX tasks_metered_idx ON {schema}.tasks (tenant) WHERE options ? 'metered';
CREATE INDEX task_packs_metered_idx ON {schema}.task_packs (tenant) WHERE options ? 'metered';
