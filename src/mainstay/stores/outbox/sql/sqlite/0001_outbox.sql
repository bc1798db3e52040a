-- The outbox of mainstay: messages that were added in a transaction, for a relay to publish.
CREATE TABLE mainstay_outbox_schema (version INTEGER NOT NULL);

INSERT INTO mainstay_outbox_schema VALUES (0);

CREATE TABLE mainstay_outbox (
    id TEXT PRIMARY KEY NOT NULL,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    aggregate_type TEXT NOT NULL DEFAULT '',
    aggregate_id TEXT NOT NULL DEFAULT '',
    aggregate TEXT,
    dedupe_key TEXT,
    attributes TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    position INTEGER NOT NULL,
    is_moved INTEGER NOT NULL DEFAULT 0,
    is_replay INTEGER NOT NULL DEFAULT 0,
    has_item INTEGER,
    phase TEXT NOT NULL DEFAULT 'ready',
    attempts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    next_at REAL,
    token TEXT NOT NULL DEFAULT '',
    lease_until REAL,
    ended_at REAL,
    history TEXT NOT NULL DEFAULT '',
    -- What holds an aggregate: 0 parked, 1 ready, 2 claimed, waiting or holding.
    hold INTEGER GENERATED ALWAYS AS (
        CASE phase WHEN 'parked' THEN 0 WHEN 'ready' THEN 1 WHEN 'claimed' THEN 2
        WHEN 'waiting' THEN 2 WHEN 'holding' THEN 2 END
    ) STORED
);

CREATE UNIQUE INDEX mainstay_outbox_dedupe ON mainstay_outbox (dedupe_key)
    WHERE dedupe_key IS NOT NULL;

-- The next position is one more than the largest: SQLite has one writer.
CREATE INDEX mainstay_outbox_position ON mainstay_outbox (position);

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
    consumer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    consumed_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

CREATE INDEX mainstay_consumed_at ON mainstay_consumed (consumed_at);

-- An event that was emitted is neither changed nor deleted.
CREATE TRIGGER mainstay_outbox_no_update
    BEFORE UPDATE OF id, topic, payload, content_type, aggregate_type, aggregate_id, aggregate,
        dedupe_key, attributes, created_at ON mainstay_outbox
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: messages are not changed; add a compensating one');
END;

CREATE TRIGGER mainstay_outbox_no_delete BEFORE DELETE ON mainstay_outbox
WHEN OLD.phase <> 'purged'
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: messages are not deleted; run `mainstay outbox purge`');
END;

-- Only what has ended can be purged.
CREATE TRIGGER mainstay_outbox_no_purge BEFORE UPDATE OF phase ON mainstay_outbox
WHEN NEW.phase = 'purged' AND OLD.phase NOT IN ('sent', 'discarded')
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: only what was sent or discarded can be purged');
END;

-- REPLACE deletes without the trigger above, unless recursive_triggers is on. The second message
-- with a dedupe key is ignored; a second one with an id is refused.
CREATE TRIGGER mainstay_outbox_no_replace BEFORE INSERT ON mainstay_outbox
WHEN EXISTS (SELECT 1 FROM mainstay_outbox WHERE id = NEW.id)
    OR EXISTS (SELECT 1 FROM mainstay_outbox WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: there is a message of that id');
END;

CREATE TRIGGER mainstay_outbox_no_move BEFORE UPDATE ON mainstay_outbox
WHEN OLD.rowid <> NEW.rowid
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: messages are not changed; add a compensating one');
END;

CREATE TRIGGER mainstay_outbox_once BEFORE INSERT ON mainstay_outbox
WHEN NEW.dedupe_key IS NOT NULL
    AND EXISTS (SELECT 1 FROM mainstay_outbox WHERE dedupe_key = NEW.dedupe_key)
BEGIN
    SELECT RAISE(IGNORE);
END;

UPDATE mainstay_outbox_schema SET version = 1;
