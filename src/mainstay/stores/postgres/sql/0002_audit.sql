-- The audit log, in blocks: a header, the link of the header and of each record, and the records
-- as one JSON array. What is in no column of its own is in the header, which is linked too.
-- Bytes, not text: what was hashed is what is kept.
CREATE TABLE mainstay_audit_blocks (
    block bigint PRIMARY KEY,
    header bytea NOT NULL,
    links bytea NOT NULL,
    body bytea NOT NULL
);

-- What the log's end was at some times.
CREATE TABLE mainstay_audit_heads (
    block bigint NOT NULL,
    head bytea NOT NULL
);

CREATE INDEX mainstay_audit_heads_block ON mainstay_audit_heads (block);

-- Where the log begins, where older blocks were dropped, and which of their records were kept.
CREATE TABLE mainstay_audit_anchor (
    log text NOT NULL,
    block bigint NOT NULL,
    number bigint NOT NULL,
    link bytea NOT NULL,
    carried bytea NOT NULL
);

-- One row for each event, to be read with SQL.
CREATE VIEW mainstay_audit AS
SELECT
    (h.header ->> 'first')::bigint + e.position - 1 AS number,
    e.event ->> 'event_type' AS event_type,
    e.event ->> 'operation' AS operation,
    e.event ->> 'policy' AS policy,
    e.event ->> 'call_id' AS call_id,
    e.event ->> 'tenant_id' AS tenant_id,
    e.event ->> 'timestamp' AS timestamp,
    h.header ->> 'writer' AS writer,
    e.event AS event
FROM mainstay_audit_blocks AS b
CROSS JOIN LATERAL (SELECT convert_from(b.header, 'UTF8'::name)::json AS header) AS h
CROSS JOIN LATERAL json_array_elements(convert_from(b.body, 'UTF8'::name)::json)
    WITH ORDINALITY AS e (event, position);
