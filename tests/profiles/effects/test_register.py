"""Registering users from end to end: PostgreSQL, an HTTP server, and the mock cluster of Kafka."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.integrations.errors.service_stub import Answer, ServiceStub, in_json
from tests.publishers.test_kafka import read
from tests.servers.kafka import MockCluster

EXAMPLE = Path(__file__).parents[3] / "examples/doors/register_effects.py"
SCHEMA = """
CREATE TABLE users (id uuid PRIMARY KEY, email text UNIQUE);
CREATE SEQUENCE inserts;
CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('inserts') = 1 THEN
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail_once BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION fail_once();
"""
"""The first INSERT fails; a sequence counts them, since it is not rolled back."""


@pytest.mark.req("EF-01", "EF-02", "EF-03", "EF-05.tables", "EF-10")
def test_users_are_registered_through_faults(postgres_database):
    """A 503 and a serialization failure are retried; a 404 and a duplicate are sent once."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute(SCHEMA)
    with ServiceStub() as api, MockCluster() as cluster:
        cluster.topic("user.created.v1")
        api.answers(
            Answer(503),
            in_json(200, {"email": "ann@example.com"}),
            Answer(404),
            in_json(200, {"email": "ann@example.com"}),
        )
        done = subprocess.run(
            [sys.executable, EXAMPLE, "ann", "bob", "cid"],
            env={
                **os.environ,
                "DATABASE_URL": postgres_database,
                "PROFILE_URL": api.url,
                "BROKER_URL": f"kafka://{cluster.bootstrap}",
            },
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout.splitlines() == [
            "ann: registered",
            "bob: not registered: SecretResolutionError",
            "cid: not registered: InfraDataIntegrityError",
            "events published: 1",
        ], done.stderr
        assert [path for _, path, *_ in api.requests] == [
            "/users/ann", "/users/ann", "/users/bob", "/users/cid",
        ]  # fmt: skip
        (record,) = read(cluster, "user.created.v1")
    with psycopg.connect(postgres_database) as connection:
        ((user_id, email),) = connection.execute("SELECT id, email FROM users").fetchall()
        assert connection.execute("SELECT last_value FROM inserts").fetchone() == (3,)
    assert json.loads(record.value()) == {"user_id": str(user_id), "email": email}
    assert record.key() == str(user_id).encode()
