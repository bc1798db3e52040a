-- Version 2: places at the real commit, and no step of an entry but those of relays and operators.

-- When the place of an entry was asked for before the commit.
ALTER TABLE mainstay_outbox ADD COLUMN fired_at timestamp with time zone;

-- As before; but SET CONSTRAINTS ALL IMMEDIATE, which checks of Django send, runs what is deferred
-- long before the commit. Then this queues itself anew, deferred. At a commit that does not show in
-- current_query(), such as that of a procedure, it does the same once, and is run again at once: by
-- the same statement.
CREATE OR REPLACE FUNCTION mainstay_outbox_committing() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('mainstay_outbox'::text, ''::text);
    IF NEW.aggregate IS NULL THEN
        RETURN NULL;
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
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (
        SELECT 1 FROM mainstay_outbox AS o
        WHERE o.aggregate = NEW.aggregate AND o.position > NEW.position
          AND o.hold IN (0, 1, 2)
          AND (o.is_moved OR o.xmin <> pg_current_xact_id()::xid)
    ) THEN
        UPDATE mainstay_outbox
        SET position = nextval('mainstay_outbox_position'::regclass), is_moved = true
        WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;

DROP TRIGGER mainstay_outbox_committing ON mainstay_outbox;

CREATE CONSTRAINT TRIGGER mainstay_outbox_committing
    AFTER INSERT OR UPDATE OF fired_at ON mainstay_outbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.phase = 'ready')
    EXECUTE FUNCTION mainstay_outbox_committing();

CREATE FUNCTION mainstay_outbox_refuse_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        MESSAGE = 'mainstay_outbox: UPDATE is refused: ' || OLD.phase || ' to ' || NEW.phase
            || ', with what comes with it, is no step of a relay or an operator',
        HINT = 'run `mainstay outbox relay`, or `mainstay outbox dead replay` or `discard`',
        ERRCODE = 'integrity_constraint_violation';
END
$$;

-- What core/outbox/entry.py has as TRANSITIONS, and what comes with each.
CREATE TRIGGER mainstay_outbox_no_step BEFORE UPDATE ON mainstay_outbox
    FOR EACH ROW WHEN (
        OLD.phase <> NEW.phase AND (OLD.phase, NEW.phase) NOT IN (
            ('scheduled', 'ready'), ('ready', 'claimed'), ('ready', 'parked'), ('parked', 'ready'),
            ('waiting', 'ready'), ('claimed', 'sent'), ('claimed', 'waiting'), ('claimed', 'ready'),
            ('claimed', 'parked'), ('claimed', 'dead'), ('claimed', 'holding'), ('dead', 'ready'),
            ('dead', 'discarded'), ('holding', 'ready'), ('holding', 'discarded'),
            ('sent', 'purged'), ('discarded', 'purged')
        )
        OR NEW.position < OLD.position
        OR NEW.attempts <> OLD.attempts + (OLD.phase = 'ready' AND NEW.phase = 'claimed')::integer
            AND NOT (OLD.phase = 'claimed' AND NEW.phase <> 'claimed'
                AND NEW.attempts = OLD.attempts - 1)
            AND NOT (OLD.phase IN ('dead', 'holding') AND NEW.phase = 'ready' AND NEW.attempts = 0)
        OR (NEW.history <> OLD.history OR NEW.crashes <> OLD.crashes)
            AND NOT (OLD.phase IN ('claimed', 'dead', 'holding') AND NEW.phase <> OLD.phase)
        OR NEW.history = '' AND OLD.history <> ''
        OR OLD.phase IN ('dead', 'holding') AND NEW.phase <> OLD.phase AND NEW.history = OLD.history
        OR NEW.is_replay <> OLD.is_replay
            AND NOT (OLD.phase IN ('dead', 'holding') AND NEW.phase = 'ready')
        OR NEW.ended_at IS DISTINCT FROM OLD.ended_at
            AND NOT (NEW.phase IN ('sent', 'discarded') AND NEW.phase <> OLD.phase)
        OR NEW.phase IN ('sent', 'discarded') AND NEW.ended_at IS NULL
    )
    EXECUTE FUNCTION mainstay_outbox_refuse_step();

UPDATE mainstay_outbox_schema SET version = 2;
