-- Everything that is kept, by what it is kept for and its key.
CREATE TABLE mainstay_kept (
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    expires REAL,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;

CREATE INDEX mainstay_kept_expires ON mainstay_kept (expires) WHERE expires IS NOT NULL;
