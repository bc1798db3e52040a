-- The outbox of mainstay: messages that were added in a transaction, for a relay to publish.
CREATE TABLE mainstay_outbox_schema (version integer NOT NULL);

INSERT INTO mainstay_outbox_schema VALUES (0);

CREATE SEQUENCE mainstay_outbox_position;

CREATE TABLE mainstay_outbox (
    id text COLLATE "C" PRIMARY KEY,
    topic text NOT NULL,
    payload bytea NOT NULL,
    content_type text NOT NULL,
    aggregate_type text NOT NULL DEFAULT '',
    aggregate_id text NOT NULL DEFAULT '',
    aggregate text COLLATE "C",
    dedupe_key text COLLATE "C",
    attributes text NOT NULL DEFAULT '',
    created_at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    position bigint NOT NULL DEFAULT nextval('mainstay_outbox_position'::regclass),
    is_moved boolean NOT NULL DEFAULT false,
    is_replay boolean NOT NULL DEFAULT false,
    has_item boolean,
    phase text COLLATE "C" NOT NULL DEFAULT 'ready',
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    next_at double precision,
    token text COLLATE "C" NOT NULL DEFAULT '',
    lease_until double precision,
    ended_at double precision,
    history text NOT NULL DEFAULT '',
    -- What holds an aggregate: 0 parked, 1 ready, 2 claimed, waiting or holding.
    hold smallint GENERATED ALWAYS AS (
        CASE phase WHEN 'parked' THEN 0 WHEN 'ready' THEN 1 WHEN 'claimed' THEN 2
        WHEN 'waiting' THEN 2 WHEN 'holding' THEN 2 END
    ) STORED
);

CREATE UNIQUE INDEX mainstay_outbox_dedupe ON mainstay_outbox (dedupe_key)
    WHERE dedupe_key IS NOT NULL;

CREATE INDEX mainstay_outbox_ready ON mainstay_outbox (position) WHERE phase = 'ready';

-- Every entry that holds its aggregate: entries that were sent cost a claim nothing. No other index
-- has a condition that a look into this one fulfils, so that no statistics can mislead a planner.
CREATE INDEX mainstay_outbox_aggregate ON mainstay_outbox (aggregate, hold, position)
    WHERE aggregate IS NOT NULL AND hold IS NOT NULL;

CREATE INDEX mainstay_outbox_due ON mainstay_outbox (phase, next_at) WHERE next_at IS NOT NULL;

CREATE INDEX mainstay_outbox_lease ON mainstay_outbox (lease_until) WHERE lease_until IS NOT NULL;

-- has_item is set of dead entries: whether the inbox has an item of it.
CREATE INDEX mainstay_outbox_dead ON mainstay_outbox (has_item, position)
    WHERE has_item IS NOT NULL;

CREATE INDEX mainstay_outbox_ended ON mainstay_outbox (ended_at)
    WHERE phase IN ('sent', 'discarded');

CREATE TABLE mainstay_consumed (
    consumer text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    consumed_at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX mainstay_consumed_at ON mainstay_consumed (consumed_at);

-- At the commit: an entry comes after those of its aggregate that were committed before it. A
-- transaction that is not READ COMMITTED cannot see them, and its entries come last. Then the relays
-- are woken; PostgreSQL sends one notification for each transaction.
CREATE FUNCTION mainstay_outbox_committing() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
    IF NEW.aggregate IS NOT NULL AND (
        current_setting('transaction_isolation') <> 'read committed' OR EXISTS (
            SELECT 1 FROM mainstay_outbox AS o
            WHERE o.aggregate = NEW.aggregate AND o.position > NEW.position
              AND o.hold IN (0, 1, 2)
              AND (o.is_moved OR o.xmin <> pg_current_xact_id()::xid)
        )
    ) THEN
        UPDATE mainstay_outbox
        SET position = nextval('mainstay_outbox_position'::regclass), is_moved = true
        WHERE id = NEW.id;
    END IF;
    PERFORM pg_notify('mainstay_outbox', '');
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER mainstay_outbox_committing AFTER INSERT ON mainstay_outbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.phase = 'ready')
    EXECUTE FUNCTION mainstay_outbox_committing();

-- An event that was emitted is neither changed nor deleted.
CREATE FUNCTION mainstay_outbox_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        MESSAGE = 'mainstay_outbox: ' || TG_OP || ' is refused: messages are not changed or deleted',
        HINT = 'add a compensating message; or run `mainstay outbox purge`',
        ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE TRIGGER mainstay_outbox_no_update
    BEFORE UPDATE OF id, topic, payload, content_type, aggregate_type, aggregate_id, aggregate,
        dedupe_key, attributes, created_at
    ON mainstay_outbox FOR EACH ROW EXECUTE FUNCTION mainstay_outbox_refuse();

CREATE TRIGGER mainstay_outbox_no_delete BEFORE DELETE ON mainstay_outbox
    FOR EACH ROW WHEN (OLD.phase <> 'purged') EXECUTE FUNCTION mainstay_outbox_refuse();

-- Only what has ended can be purged.
CREATE TRIGGER mainstay_outbox_no_purge BEFORE UPDATE OF phase ON mainstay_outbox
    FOR EACH ROW WHEN (NEW.phase = 'purged' AND OLD.phase NOT IN ('sent', 'discarded'))
    EXECUTE FUNCTION mainstay_outbox_refuse();

CREATE TRIGGER mainstay_outbox_no_truncate BEFORE TRUNCATE ON mainstay_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION mainstay_outbox_refuse();

UPDATE mainstay_outbox_schema SET version = 1;
