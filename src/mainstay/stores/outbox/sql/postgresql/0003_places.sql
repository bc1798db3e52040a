-- Version 3: the place of an entry costs the same however many of its aggregate one transaction adds,
-- and is that in its own table, whatever search_path is set at the commit.

-- The transaction that added an entry, which xmin is not if that was in a savepoint.
ALTER TABLE mainstay_outbox ADD COLUMN added_in xid8;

ALTER TABLE mainstay_outbox ALTER COLUMN added_in SET DEFAULT pg_catalog.pg_current_xact_id();

-- As before; but an entry looks at the last one of its aggregate, and if that is of this transaction, at
-- the one before it. If an entry of a transaction moves, all later ones of the aggregate do, since
-- they find it as the last. So if the one before is of this transaction, nothing was behind that, and
-- only the first looks through all that are behind.
CREATE OR REPLACE FUNCTION mainstay_outbox_committing() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    path text;
    moves boolean;
BEGIN
    PERFORM pg_catalog.pg_notify('mainstay_outbox'::text, ''::text);
    IF NEW.aggregate IS NULL THEN
        RETURN NULL;
    END IF;
    IF pg_catalog.to_regclass('mainstay_outbox'::text)::oid IS DISTINCT FROM TG_RELID THEN
        path := pg_catalog.current_setting('search_path'::text);
        PERFORM pg_catalog.set_config('search_path'::text,
            pg_catalog.quote_ident(TG_TABLE_SCHEMA::text) || ', pg_temp'::text, true);
    END IF;
    IF NOT pg_catalog.texticregexeq(
            pg_catalog.current_query(),
            '^\s*(/\*[^*]*\*/\s*)*(commit|end)(\s+(work|transaction))?(\s+and\s+(no\s+)?chain)?'
            '[\s;]*(/\*[^*]*\*/[\s;]*)*$'::text)
        AND NEW.fired_at IS DISTINCT FROM pg_catalog.statement_timestamp()
    THEN
        EXECUTE 'SET CONSTRAINTS '::text || pg_catalog.quote_ident(TG_TABLE_SCHEMA::text)
            || '.mainstay_outbox_committing DEFERRED'::text;
        UPDATE mainstay_outbox SET fired_at = pg_catalog.statement_timestamp() WHERE id = NEW.id;
    ELSE
        IF pg_catalog.current_setting('transaction_isolation'::text) <> 'read committed'::text THEN
            moves := true;
        ELSE
            -- True if one that must come before is behind, null if none is, false if an own one is.
            SELECT EXISTS (
                SELECT 1 FROM mainstay_outbox AS o
                WHERE o.aggregate = NEW.aggregate AND o.hold IN (0, 2) AND o.position > NEW.position
            ) OR (
                SELECT o.is_moved
                    OR o.added_in IS DISTINCT FROM pg_catalog.pg_current_xact_id()
                FROM mainstay_outbox AS o
                WHERE o.aggregate = NEW.aggregate AND o.hold = 1 AND o.position > NEW.position
                ORDER BY o.position DESC LIMIT 1
            ) INTO moves;
            IF NOT moves THEN
                SELECT (
                    SELECT o.added_in
                    FROM mainstay_outbox AS o
                    WHERE o.aggregate = NEW.aggregate AND o.hold = 1 AND o.position < NEW.position
                    ORDER BY o.position DESC LIMIT 1
                ) IS DISTINCT FROM pg_catalog.pg_current_xact_id() AND EXISTS (
                    SELECT 1 FROM mainstay_outbox AS o
                    WHERE o.aggregate = NEW.aggregate AND o.hold = 1 AND o.position > NEW.position
                      AND o.added_in IS DISTINCT FROM pg_catalog.pg_current_xact_id()
                ) INTO moves;
            END IF;
        END IF;
        IF moves THEN
            UPDATE mainstay_outbox
            SET position = nextval('mainstay_outbox_position'::regclass), is_moved = true
            WHERE id = NEW.id;
        END IF;
    END IF;
    IF path IS NOT NULL THEN
        PERFORM pg_catalog.set_config('search_path'::text, path, true);
    END IF;
    RETURN NULL;
END
$$;

UPDATE mainstay_outbox_schema SET version = 3;
