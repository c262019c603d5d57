-- Streams that consumers set aside, replay, or handle again are told to whoever looks after the
-- cluster: how many there are may be the same before and after. By statement, because a person may
-- replay thousands at once; one that changed nothing says nothing.
CREATE FUNCTION {schema}.feed_parked() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.feed_note('consumer', jsonb_build_object(
        'name', one.consumer_name, 'streams', one.streams))
       FROM (SELECT DISTINCT consumer_name,
                    CASE WHEN TG_OP = 'DELETE' THEN 'gone' ELSE state END AS streams
               FROM changed) AS one;
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed_parked AFTER INSERT ON {schema}.parked_streams
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.feed_parked();
CREATE TRIGGER tidemill_feed AFTER UPDATE ON {schema}.parked_streams
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.feed_parked();
CREATE TRIGGER tidemill_feed_gone AFTER DELETE ON {schema}.parked_streams
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.feed_parked();
