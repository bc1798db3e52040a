-- The audit log, in blocks: a header, the link of the header and of each record, and the records
-- as one JSON array. What is in no column of its own is in the header, which is linked too.
CREATE TABLE mainstay_audit_blocks (
    block INTEGER PRIMARY KEY,
    header TEXT NOT NULL,
    links BLOB NOT NULL,
    body TEXT NOT NULL
);

-- What the log's end was at some times.
CREATE TABLE mainstay_audit_heads (
    block INTEGER NOT NULL,
    head TEXT NOT NULL
);

CREATE INDEX mainstay_audit_heads_block ON mainstay_audit_heads (block);

-- Where the log begins, where older blocks were dropped, and which of their records were kept.
CREATE TABLE mainstay_audit_anchor (
    log TEXT NOT NULL,
    block INTEGER NOT NULL,
    number INTEGER NOT NULL,
    link BLOB NOT NULL,
    carried TEXT NOT NULL
);

-- One row for each event, to be read with SQL.
CREATE VIEW mainstay_audit AS
SELECT
    json_extract(b.header, '$.first') + e.key AS number,
    json_extract(e.value, '$.event_type') AS event_type,
    json_extract(e.value, '$.operation') AS operation,
    json_extract(e.value, '$.policy') AS policy,
    json_extract(e.value, '$.call_id') AS call_id,
    json_extract(e.value, '$.tenant_id') AS tenant_id,
    json_extract(e.value, '$.timestamp') AS timestamp,
    json_extract(b.header, '$.writer') AS writer,
    e.value AS event
FROM mainstay_audit_blocks AS b, json_each(b.body) AS e;
