/**
 * Columns of every statement that reads whole events, in the order that `PersistedEvent` expects,
 * written so that no setting of the session (bytea_output, DateStyle) changes their text.
 */
export const EVENT_COLUMNS = `global_position, {stream_type}, {stream_id}, {stream_version},
       event_id, event_type, event_version, encode(payload, 'hex'), metadata::text,
       trace_id, correlation_id, causation_id, date_part('epoch', created_at)`;
