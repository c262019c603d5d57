-- A server that hands tasks to remote workers runs tasks of a queue without owning keys of it.
ALTER TABLE {schema}.worker_info ADD COLUMN owns_keys BOOLEAN NOT NULL DEFAULT TRUE;
