"""Servers that load the program and fork their workers: what these record is kept."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.crash.forks import PRELUDE, ROOT, lines, run, start, violations
from tests.processes import wait_until
from tests.servers.ports import free_port

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

APP = """
engine = Engine(url, share=0.05, breakers=[mainstay.CircuitBreaker("pay")])
once(engine, "preloaded")

def app(environ, start_response):
    is_kept = once(engine, environ["PATH_INFO"].strip("/"))
    start_response("200 OK" if is_kept else "503 Service Unavailable", [])
    return [str(os.getpid()).encode()]
"""
TASKS = """
from celery import Celery
engine = Engine(url, share=0.05, breakers=[mainstay.CircuitBreaker("pay")])
once(engine, "preloaded")
app = Celery("tasks", broker=os.environ["BROKER"])

@app.task
def pay(key):
    once(engine, key)
"""


class Served:
    """A server's process; what it prints is kept in a file."""

    def __init__(self, folder, *command, **env):
        paths = os.pathsep.join((str(ROOT / "src"), str(folder)))
        env = {**os.environ, "PYTHONPATH": paths, "FORKS_FOLDER": str(folder), **env}
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command], env=env, cwd=folder, stdout=log, stderr=log
            )

    def stop(self):
        """Ends it as an operator does."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(self.log.read_text()) from None


@pytest.fixture
def other(tmp_path):
    """Another process, which opens and closes the store and writes to it, all the time."""
    process = start(OFTEN, tmp_path)
    yield
    (tmp_path / "stop").touch()
    complaints = process.communicate(timeout=60)[1]
    assert process.returncode == 0, complaints


OFTEN = """
number = 0
while not os.path.exists(f"{where}/stop"):
    with Engine(url, audit=False) as engine:
        for _ in range(5):
            number += 1
            once(engine, f"other-{number}")
    time.sleep(0.01)
"""


def ask(port, key):
    """The status and the body of an answer; 0 while the server does not listen."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", f"/{key}")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


@pytest.mark.usefixtures("other")
def test_the_workers_of_gunicorn_with_preload_record_for_good(tmp_path):
    """The master has opened the store; its workers are forked, restarted and ended."""
    (tmp_path / "web.py").write_text(PRELUDE + APP)
    port = free_port()
    served = Served(
        tmp_path, "gunicorn", "--preload", "--workers", "2", "--threads", "2",
        "--bind", f"127.0.0.1:{port}", "web:app",
    )  # fmt: skip
    try:
        wait_until(lambda: ask(port, "ready")[0] == 200, "gunicorn")
        answers = []

        def some(name):
            answers.extend(ask(port, f"{name}-{number}") for number in range(20))

        threads = [threading.Thread(target=some, args=(name,)) for name in "abc"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        served.process.send_signal(signal.SIGHUP)  # other workers take their place
        known = {pid for _, pid in answers}
        wait_until(lambda: ask(port, "again")[1] not in {*known, ""}, "other workers")
        some("later")
    finally:
        served.stop()
    assert {status for status, _ in answers} == {200}, served.log.read_text()
    assert lines(tmp_path, "refused") == []
    assert len({line.split()[0] for line in lines(tmp_path, "answers")}) >= 80
    assert violations(tmp_path) == []


@pytest.mark.usefixtures("other")
def test_the_processes_of_a_celery_worker_record_for_good(tmp_path, valkey_url):
    """Its pool is forked from a process that has loaded the tasks and opened the store."""
    (tmp_path / "tasks.py").write_text(PRELUDE + TASKS)
    send = "import tasks\nfor number in range(40): tasks.pay.delay(f'key-{number}')"
    queue = f"{valkey_url.rpartition('/')[0]}/9"
    served = Served(
        tmp_path, "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "2",
        "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat",
        BROKER=queue,
    )  # fmt: skip
    try:
        run(f"sys.path.insert(0, where)\nos.environ['BROKER'] = {queue!r}\n{send}", tmp_path)

        def answered():
            return {line for line in lines(tmp_path, "answers") if line.startswith("key-")}

        wait_until(lambda: len(answered()) >= 40, "the tasks", 60.0)
    finally:
        served.stop()
    assert lines(tmp_path, "refused") == []
    pids = {line.split()[1] for line in lines(tmp_path, "answers") if line.startswith("key-")}
    assert len(pids) == 2, served.log.read_text()
    assert violations(tmp_path) == []
