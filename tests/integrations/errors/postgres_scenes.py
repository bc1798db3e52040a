"""What goes wrong with PostgreSQL, each as a function that a connection is handed to, and raises.

`Scene.other` is a plain connection of its own, in autocommit, that plays the opponent.
"""

import contextlib
import socket
import threading
import time

import psycopg


class Scene:
    """A server, a driver, and what the two come to."""

    def __init__(self, server, driver):
        self.server = server
        self.driver = driver
        self.url = server.url
        self.other = psycopg.connect(self.url, autocommit=True)

    def close(self):
        self.other.close()

    def as_user(self, user):
        return self.url.replace("postgres@", f"{user}@")

    @contextlib.contextmanager
    def connected(self, url=None):
        connection = self.driver(url or self.url)
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def run(self, *statements):
        with self.connected() as connection:
            for statement in statements:
                connection.execute(statement)

    # --- connecting

    def dead_port(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.driver(f"postgresql://postgres@127.0.0.1:{closed.getsockname()[1]}/postgres")

    def wrong_password(self):
        self.driver(self.as_user("secret:wrong"))

    def unknown_role(self):
        self.driver(self.as_user("stranger"))

    def unknown_database(self):
        self.driver(self.url.removesuffix("postgres") + "nowhere")

    def too_many_connections(self):
        """The server has 40, and keeps 34 of them for superusers."""
        with contextlib.ExitStack() as held:
            for _ in range(7):
                held.enter_context(self.connected(self.as_user("plain")))

    # --- statements

    def missing_table(self):
        self.run("SELECT * FROM nowhere")

    def unique_violation(self):
        self.run("INSERT INTO rows VALUES (1, 1)")

    def read_only(self):
        self.run("SET TRANSACTION READ ONLY", "INSERT INTO rows VALUES (8, 1)")

    def statement_timeout(self):
        self.run("SET statement_timeout = '10ms'", "SELECT pg_sleep(60)")

    def lock_timeout(self):
        with self.other.transaction():
            self.other.execute("UPDATE rows SET n = n + 1 WHERE id = 1")
            self.run("SET lock_timeout = '10ms'", "UPDATE rows SET n = n + 1 WHERE id = 1")

    def serialization_failure(self):
        with self.connected() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT * FROM rows")
            self.other.execute("UPDATE rows SET n = n + 1")
            connection.execute("UPDATE rows SET n = n + 1")

    def deadlock(self):
        """Each waits for the row of the other; ours looks for deadlocks first."""
        with self.connected() as connection, psycopg.connect(self.url) as opponent:
            connection.execute("SET deadlock_timeout = '10ms'")
            opponent.execute("SET deadlock_timeout = '60s'")
            connection.execute("UPDATE rows SET n = n + 1 WHERE id = 1")
            opponent.execute("UPDATE rows SET n = n + 1 WHERE id = 2")
            waits = threading.Thread(
                target=opponent.execute, args=["UPDATE rows SET n = n + 1 WHERE id = 1"]
            )
            waits.start()
            self.until("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            try:
                connection.execute("UPDATE rows SET n = n + 1 WHERE id = 2")
            finally:
                connection.close()
                waits.join()
                opponent.rollback()

    def terminated_while_idle(self):
        with self.connected() as connection:
            self.terminate(connection.execute("SELECT pg_backend_pid()")[0][0])
            connection.execute("SELECT 1")

    def terminated_in_a_statement(self):
        with self.connected() as connection:
            pid = connection.execute("SELECT pg_backend_pid()")[0][0]
            ends = threading.Thread(target=self.terminate_sleeping, args=[pid])
            ends.start()
            try:
                connection.execute("SELECT pg_sleep(60)")
            finally:
                ends.join()

    def closed_before(self):
        with self.connected() as connection:
            connection.disconnect()
            connection.execute("SELECT 1")

    def terminate_sleeping(self, pid):
        self.until(f"SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = {pid}")
        self.terminate(pid)

    def terminate(self, pid):
        self.other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])

    def until(self, query):
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            if self.other.execute(query).fetchone():
                return
            time.sleep(0.001)
        raise AssertionError(query)
