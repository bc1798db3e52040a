"""The content of a server as JSON, and back into a fresh one: plain rows, keys and messages.

Nothing here asks the code of the stores: what is loaded is what was there, byte for byte. Only the
moment at which a server drops a key by itself is left out, since it is over by then.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from pathlib import Path

import nats
import psycopg
import redis
from nats.js.api import StreamConfig

import mainstay


def _text(data):
    return b64encode(data).decode()


# --- PostgreSQL: the scripts that made the tables, and their rows ---------------------------------


def dump_postgres(url):
    """The scripts of the schema, and the rows of each table."""
    scripts = sorted(Path(mainstay.__file__).parent.rglob("postgres/sql/*.sql"))
    assert scripts, "the schema has moved"
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1"
        ).fetchall()
        tables = {name: _rows(connection, name) for (name,) in found}
    return {"schema": [path.read_text(encoding="utf-8") for path in scripts], "tables": tables}


def _rows(connection, name):
    cursor = connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2")
    columns = [column.name for column in cursor.description]
    return {"columns": columns, "rows": [[_plain(cell) for cell in row] for row in cursor]}


def _plain(cell):
    if isinstance(cell, bytes):
        return {"bytes": _text(cell)}
    return cell if isinstance(cell, str | int | float | None) else str(cell)


_SCHEMA = (
    "CREATE TABLE mainstay_schema"
    " (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
)


def load_postgres(url, dump):
    """The tables as they were, in an empty database."""
    with psycopg.connect(url) as connection:
        connection.execute(_SCHEMA)
        for script in dump["schema"]:
            connection.execute(script)
        for name, table in dump["tables"].items():
            columns = ", ".join(table["columns"])
            marks = ", ".join(["%s"] * len(table["columns"]))
            for row in table["rows"]:
                cells = [b64decode(c["bytes"]) if isinstance(c, dict) else c for c in row]
                connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({marks})", cells)


# --- Redis: keys by their type --------------------------------------------------------------------


def dump_redis(url):
    """Each key with its value; strings, sets and sorted sets are all there are."""
    with redis.Redis.from_url(url) as client:
        return [[_text(key), *_value(client, key)] for key in sorted(client.scan_iter())]


def _value(client, key):
    kind = client.type(key).decode()
    if kind == "string":
        return kind, _text(client.get(key))
    if kind == "set":
        return kind, sorted(map(_text, client.smembers(key)))
    if kind == "zset":
        return kind, [
            [_text(name), score] for name, score in client.zrange(key, 0, -1, withscores=True)
        ]
    raise AssertionError(f"{key} is a {kind}")


def load_redis(url, dump):
    """The keys as they were, in an empty server."""
    with redis.Redis.from_url(url) as client:
        for name, kind, value in dump:
            key = b64decode(name)
            if kind == "string":
                client.set(key, b64decode(value))
            elif kind == "set":
                client.sadd(key, *map(b64decode, value))
            else:
                client.zadd(key, {b64decode(member): score for member, score in value})


# --- NATS: the stream of the bucket, and its messages ---------------------------------------------

_STREAM = "KV_mainstay"


def dump_nats(url):
    """The configuration of the bucket's stream, and the last message of each subject."""

    async def work(js):
        info = await js.stream_info(_STREAM)
        messages = []
        for number in range(info.state.first_seq, info.state.last_seq + 1):
            try:
                found = await js.get_msg(_STREAM, number)
            except nats.js.errors.NotFoundError:  # another one came after it
                continue
            messages.append([found.subject, found.headers or {}, _text(found.data or b"")])
        return {"config": info.config.as_dict(), "messages": messages}

    return asyncio.run(_with_nats(url, work))


def load_nats(url, dump):
    """The messages as they were, in an empty server."""

    async def work(js):
        await js.add_stream(StreamConfig.from_response(dict(dump["config"])))
        for subject, headers, data in dump["messages"]:
            mine = {name: v for name, v in headers.items() if not name.startswith("Nats-Expected")}
            await js.publish(subject, b64decode(data), headers=mine or None)

    asyncio.run(_with_nats(url, work))


async def _with_nats(url, work):
    client = await nats.connect(url)
    try:
        return await work(client.jetstream())
    finally:
        await client.close()
