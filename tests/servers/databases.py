"""Databases with an outbox for tests, and connections of an application to them."""

import sqlite3
import uuid
from contextlib import contextmanager

import psycopg
import pytest


class Place:
    """A database, by its URL, and an application's connections: each commits when it is left."""

    def __init__(self, url, connect):
        self.url, self.connect = url, connect

    @property
    def dialect(self):
        return self.url.partition(":")[0]

    def execute(self, statement):
        with self.connect() as connection:
            connection.execute(statement)


@contextmanager
def sqlite_connection(path):
    connection = sqlite3.connect(path, timeout=30.0)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def sqlite_place(folder):
    path = folder / "app.db"
    return Place(f"sqlite:///{path}", lambda: sqlite_connection(path))


def postgres_place(server_url):
    """A schema of its own in the server's database: ten times as fast as a database."""
    name = f"outbox_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    mark = "&" if "?" in server_url else "?"
    url = f"{server_url}{mark}options=-csearch_path%3D{name}"
    return Place(url, lambda: psycopg.connect(url))


@pytest.fixture(params=["sqlite", "postgresql"])
def outbox_place(request, tmp_path):
    """An empty place on each database."""
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    return postgres_place(request.getfixturevalue("postgres_url"))
