-- Everything that is kept, by what it is kept for and its key.
-- Collation C: keys are in the order of their code points, whatever the database speaks.
CREATE TABLE mainstay_kept (
    space text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    expires double precision,
    PRIMARY KEY (space, key)
) WITH (fillfactor = 80);

CREATE INDEX mainstay_kept_expires ON mainstay_kept (expires) WHERE expires IS NOT NULL;
