-- Version 3: the place of an entry costs the same however many of its aggregate one transaction adds,
-- and is that in its own table, whatever search_path is set at the commit.

-- The transaction that added an entry, which xmin is not if that was in a savepoint.
ALTER TABLE mainstay_outbox ADD COLUMN added_in xid8;

ALTER TABLE mainstay_outbox ALTER COLUMN added_in SET DEFAULT pg_catalog.pg_current_xact_id();

-- As before; but an entry with nothing behind it stays, and so does one whose predecessor is of this
-- transaction: it follows that. Any other looks at all that are behind it, once; and if one of
-- another transaction is there, all own ones from here on move at once, in their order. So the order
-- in which the triggers run does not matter, and what is added meanwhile comes last. A row that was
-- restored from another server may have the number of this transaction, but it is older (age). If
-- some have moved (mainstay.outbox_moved_in), the place at hand may be the one from before.
CREATE OR REPLACE FUNCTION mainstay_outbox_committing() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    path text;
    own CONSTANT xid8 := pg_catalog.pg_current_xact_id();
    -- Whether it cannot see what was committed meanwhile.
    is_blind CONSTANT boolean := pg_catalog.current_setting('transaction_isolation'::text)
        <> 'read committed'::text;
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
        IF is_blind OR pg_catalog.current_setting('mainstay.outbox_moved_in'::text, true) = own::text
            OR EXISTS (
                SELECT 1 FROM mainstay_outbox AS o
                WHERE o.aggregate = NEW.aggregate AND o.hold IN (0, 1, 2)
                  AND o.position > NEW.position
            )
        THEN
            -- One statement: a row that a relay takes meanwhile is in one phase, not between two.
            SELECT CASE
                WHEN (SELECT o.is_moved FROM mainstay_outbox AS o WHERE o.id = NEW.id) THEN false
                WHEN (
                    SELECT o.added_in = own AND pg_catalog.age(o.xmin) <= 0
                    FROM mainstay_outbox AS o
                    WHERE o.aggregate = NEW.aggregate AND o.hold = 1 AND o.position < NEW.position
                    ORDER BY o.position DESC LIMIT 1
                ) THEN false
                ELSE is_blind OR EXISTS (
                    SELECT 1 FROM mainstay_outbox AS o
                    WHERE o.aggregate = NEW.aggregate AND o.hold IN (0, 1, 2)
                      AND o.position > NEW.position
                      AND (o.added_in IS DISTINCT FROM own OR pg_catalog.age(o.xmin) > 0)
                )
            END INTO moves;
        END IF;
        IF moves THEN
            WITH mine AS MATERIALIZED (
                SELECT o.id FROM mainstay_outbox AS o
                WHERE o.aggregate = NEW.aggregate AND o.hold = 1 AND o.position >= NEW.position
                  AND o.added_in = own AND pg_catalog.age(o.xmin) <= 0
                ORDER BY o.position
            ), numbered AS MATERIALIZED (
                SELECT id, pg_catalog.nextval((pg_catalog.quote_ident(TG_TABLE_SCHEMA::text)
                    || '.mainstay_outbox_position'::text)::regclass) AS position FROM mine
            )
            UPDATE mainstay_outbox AS o SET position = n.position, is_moved = true
            FROM numbered AS n WHERE o.id = n.id;
            PERFORM pg_catalog.set_config('mainstay.outbox_moved_in'::text, own::text, true);
        END IF;
    END IF;
    IF path IS NOT NULL THEN
        PERFORM pg_catalog.set_config('search_path'::text, path, true);
    END IF;
    RETURN NULL;
END
$$;

UPDATE mainstay_outbox_schema SET version = 3;
