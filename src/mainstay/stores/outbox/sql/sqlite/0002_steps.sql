-- Version 2: no step of an entry but those of relays and operators.

-- What core/outbox/entry.py has as TRANSITIONS, and what comes with each.
CREATE TRIGGER mainstay_outbox_no_step BEFORE UPDATE ON mainstay_outbox
WHEN OLD.phase <> NEW.phase AND OLD.phase || ' ' || NEW.phase NOT IN (
        'scheduled ready', 'ready claimed', 'ready parked', 'parked ready', 'waiting ready',
        'claimed sent', 'claimed waiting', 'claimed ready', 'claimed parked', 'claimed dead',
        'claimed holding', 'dead ready', 'dead discarded', 'holding ready', 'holding discarded',
        'sent purged', 'discarded purged'
    )
    OR NEW.position < OLD.position
    OR NEW.attempts <> OLD.attempts + (OLD.phase = 'ready' AND NEW.phase = 'claimed')
        AND NOT (OLD.phase = 'claimed' AND NEW.phase <> 'claimed'
            AND NEW.attempts = OLD.attempts - 1)
        AND NOT (OLD.phase IN ('dead', 'holding') AND NEW.phase = 'ready' AND NEW.attempts = 0)
    OR (NEW.history <> OLD.history OR NEW.crashes <> OLD.crashes)
        AND NOT (OLD.phase IN ('claimed', 'dead', 'holding') AND NEW.phase <> OLD.phase)
    OR NEW.history = '' AND OLD.history <> ''
    OR OLD.phase IN ('dead', 'holding') AND NEW.phase <> OLD.phase AND NEW.history = OLD.history
    OR NEW.is_replay <> OLD.is_replay
        AND NOT (OLD.phase IN ('dead', 'holding') AND NEW.phase = 'ready')
    OR NEW.ended_at IS NOT OLD.ended_at
        AND NOT (NEW.phase IN ('sent', 'discarded') AND NEW.phase <> OLD.phase)
    OR NEW.phase IN ('sent', 'discarded') AND NEW.ended_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'mainstay_outbox: this is no step of a relay or an operator');
END;

UPDATE mainstay_outbox_schema SET version = 2;
