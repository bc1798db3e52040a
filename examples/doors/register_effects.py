"""Registers users with the names of the effects document: an HTTP API, PostgreSQL, and Kafka.

DATABASE_URL=postgresql://... PROFILE_URL=http://... BROKER_URL=kafka://... register_effects.py ANN

Each effect runs once; the orchestrator retries it as effects/contract.yaml allows. The row of a
user and the event that reports it are one transaction, and the event is published afterwards.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import psycopg
from pydantic import BaseModel

from mainstay.integrations.psycopg import limited
from mainstay.profiles.effects import (
    DatabaseRetryConfig,
    HttpRetryConfig,
    Orchestrator,
    OutboxEntry,
    effect,
)

CONTRACT = Path(__file__).parent / "effects/contract.yaml"
DATABASE = os.environ["DATABASE_URL"]
SETTINGS = (
    DatabaseRetryConfig(initial_delay_seconds=0.1),
    HttpRetryConfig(initial_delay_seconds=0.1),
)
database, http = SETTINGS
Connection = limited(
    psycopg.Connection,
    connect=database.connection_timeout_seconds,
    query=database.query_timeout_seconds,
)
profiles = httpx.Client(base_url=os.environ["PROFILE_URL"], **http.client_options("httpx"))


class UserCreated(BaseModel):
    """The event that reports a new user."""

    user_id: UUID
    email: str


@effect(kind="http", name="profiles")
def fetch_email(name):
    return profiles.get(f"/users/{name}").raise_for_status().json()["email"]


@effect(kind="database", name="users-db")
def insert_user(engine, user_id, email):
    with Connection.connect(DATABASE, **database.client_options("psycopg")) as connection:
        added = connection.execute(
            "INSERT INTO users (id, email) VALUES (%s, %s) ON CONFLICT (id) DO NOTHING",
            (user_id, email),
        )
        if added.rowcount:  # an attempt before may have been committed, and its answer lost
            OutboxEntry(
                id=uuid4(),
                aggregate_type="User",
                aggregate_id=user_id,
                event_type="user.created.v1",
                payload=UserCreated(user_id=user_id, email=email),
                created_at=datetime.now(UTC),
            ).add(engine, connection)


def register(orchestrator, name):
    found = orchestrator.execute(fetch_email, name)
    if found.success:
        found = orchestrator.execute(insert_user, orchestrator.engine, uuid4(), found.value)
    return "registered" if found.success else f"not registered: {found.error_type}"


def main(*names):
    with Orchestrator(CONTRACT, settings=SETTINGS, store=DATABASE) as orchestrator:
        for name in names:
            print(f"{name}: {register(orchestrator, name)}")
        relay = orchestrator.engine.outbox.relay(os.environ["BROKER_URL"])
        print(f"events published: {relay.drain().published}")


main(*sys.argv[1:])
