-- One row that lives until the server crashes. PostgreSQL empties unlogged tables whenever it recovers:
-- after a crash, after one of its processes was killed (when it goes on under the same postmaster, with
-- the same start time), and on a standby that takes over. A clean stop keeps them, and loses nothing.
-- What workers remember of lanes holds only as long as the row does: claims commit asynchronously, and
-- a crash takes some of them back.
CREATE UNLOGGED TABLE {schema}.crash_marker (
    single BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single),
    id     UUID NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO {schema}.crash_marker DEFAULT VALUES;
