"""Programs as people write them, with mainstay in at most three lines, run under faults.

Each is a process of its own (examples/programs/). Looked at is what its user looks at, the screen
and the exit status, and the requests are counted at the server.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import boto3
import httpx
import psycopg
import pytest
import redis
import requests
from celery import Celery
from confluent_kafka import KafkaError
from moto.server import ThreadedMotoServer

from mainstay.testing import FaultProxy
from tests.integrations.errors.service_stub import RESET, Answer, ServiceStub
from tests.processes import wait_until
from tests.servers.http_faults import HttpFaults, Reset, Silence, Status, dead_port
from tests.servers.kafka import MockCluster

PROGRAMS = Path(__file__).parents[2] / "examples/programs"
IN_JSON = {"Content-Type": "application/json"}
STOCK = Status(200, IN_JSON, b'{"count": 4}')
NO_ATTEMPT_LEFT = "after 3 attempts: no attempt left"
UNNAMED = "which on=mainstay.transient does not name"
MOST_FRAMES = 8
"""Lines of tracebacks that are mainstay's own; boto3 shows three of them, one in another."""


@pytest.fixture
def server():
    with HttpFaults() as server:
        yield server


class Screen:
    """What a program has left on the screen; `lines` and the exit `status`."""

    def __init__(self, status, text):
        self.status = status
        self.lines = text.splitlines()
        assert "Warning" not in text
        ours = [line for line in self.lines if '"<mainstay>"' in line or "/mainstay/" in line]
        assert len(ours) <= MOST_FRAMES, ours

    @property
    def note(self):
        """The one note of mainstay."""
        (note,) = [line for line in self.lines if line.startswith("mainstay: ")]
        return note


def ran(program, *arguments, given="", **environment):
    """Runs a program to its end."""
    return ran_as_it_is(PROGRAMS / f"{program}.py", *arguments, given=given, **environment)


def ran_as_it_is(path, *arguments, given="", **environment):
    done = subprocess.run(
        [sys.executable, path, *arguments], env={**os.environ, **environment}, input=given,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    return Screen(done.returncode, done.stdout)


def without_mainstay(program):
    """The program as it was before: without the lines that name mainstay."""
    lines = (PROGRAMS / f"{program}.py").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if "mainstay" not in line)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_mainstay_is_three_lines_of_a_program_at_most(path):
    """The rest is a program that does the same without them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert 1 <= sum("mainstay" in line for line in lines) <= 3
    compile(without_mainstay(path.stem), path.name, "exec")


# --- requests -------------------------------------------------------------------------------------


def stock(url, *products, timeout="60"):
    return ran("stock_requests", *products, SHOP_URL=url, SHOP_TIMEOUT=timeout)


def test_a_script_with_requests_survives_a_503_and_a_reset(server):
    """Two requests for each product, and nothing of it on the screen."""
    server.on("/stock/tea", Status(503), STOCK)
    server.on("/stock/milk", Reset(), STOCK)
    screen = stock(server.url, "tea", "milk")
    assert (screen.status, screen.lines) == (0, ["tea 4", "milk 4"])
    assert server.count() == 4


def test_a_script_with_requests_asks_for_what_is_missing_once(server):
    """The note has the status by which it was decided."""
    screen = stock(server.url, "tea")
    assert (screen.status, server.count()) == (1, 1)
    assert screen.note.startswith("mainstay: not retried: ")
    assert screen.note.endswith(f"HTTPError is permanent (status 404), {UNNAMED}")


def test_a_script_with_requests_gives_up_on_a_silent_server(server):
    """The note is the last line, below the exception of requests."""
    server.on("/stock/tea", Silence())
    screen = stock(server.url, "tea", timeout="0.5")
    wait_until(lambda: server.count() == 3, "the requests")
    assert screen.status == 1
    assert screen.lines[-2].startswith("requests.exceptions.ReadTimeout: ")
    assert screen.lines[-1] == f"mainstay: gave up on stock {NO_ATTEMPT_LEFT}"


def test_on_a_dead_port_mainstay_adds_a_few_lines_to_the_traceback(tmp_path):
    """The traceback is that of requests, which is long enough."""
    url = f"http://127.0.0.1:{dead_port()}"
    before = tmp_path / "before.py"
    before.write_text(without_mainstay("stock_requests"), encoding="utf-8")
    bare = ran_as_it_is(before, "tea", SHOP_URL=url)
    screen = stock(url, "tea")
    assert (bare.status, screen.status) == (1, 1)
    assert NO_ATTEMPT_LEFT in screen.note
    assert len(screen.lines) - len(bare.lines) <= 6


# --- FastAPI over httpx ---------------------------------------------------------------------------


@contextmanager
def orders(stock_url, log):
    """The service, on a port of its own; what it prints goes to the log."""
    listener = socket.create_server(("127.0.0.1", 0))
    number = listener.fileno()
    command = [sys.executable, "-m", "uvicorn", "orders_fastapi:app", "--fd", str(number)]
    settings = {"STOCK_URL": stock_url, "STOCK_TIMEOUT": "2"}
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        listener,
        running(command, log, settings, [number]),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        wait_until(lambda: answers(client), "the service")
        yield client


def answers(client):
    try:
        return client.get("/openapi.json").is_success
    except httpx.TransportError:
        return False


@contextmanager
def running(command, log, settings, pass_fds=()):
    """A program that runs until it is asked to end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **settings}
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=PROGRAMS, env=environment, stdout=output, stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
        )  # fmt: skip
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_a_service_with_fastapi_answers_through_faults_of_the_one_behind_it(server, tmp_path):
    """The caller gets the answer, or 502 after three requests; a 404 is passed on after one."""
    server.on("/stock/tea", Status(503), STOCK)
    server.on("/stock/milk", Status(503))
    server.on("/stock/salt", Reset())
    server.on("/stock/oil", Silence())
    with orders(server.url, tmp_path / "log") as client:
        seen = {
            name: (client.get(f"/orders/{name}").status_code, server.count(f"/stock/{name}"))
            for name in ("tea", "milk", "salt", "oil", "gold")
        }
    assert seen == {
        "tea": (200, 2), "milk": (502, 3), "salt": (502, 3), "oil": (502, 3), "gold": (404, 1)
    }  # fmt: skip
    log = (tmp_path / "log").read_text(encoding="utf-8")
    # For a status the exception is made by raise_for_status, after the transport has returned.
    assert log.count(f"mainstay: gave up on httpx {NO_ATTEMPT_LEFT}") == 2
    assert "Warning" not in log


# --- Celery ---------------------------------------------------------------------------------------


def test_a_worker_of_celery_repeats_what_is_safe_to_repeat(server, valkey_url, tmp_path):
    """The invoice after a 503 is sent; after a reset nobody knows, and the log has the reason."""
    broker = f"{valkey_url.rpartition('/')[0]}/9"
    server.on("/invoices/1", Status(503), Status(200))
    server.on("/invoices/2", Status(503))
    server.on("/invoices/3", Status(503), Reset())
    command = [sys.executable, "-m", "celery", "-A", "worker_celery", "worker", "--pool", "solo"]
    quick = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
    settings = {"BROKER_URL": broker, "MAIL_URL": server.url, "MAIL_TIMEOUT": "60"}
    app = Celery(broker=broker, backend=broker)
    with running([*command, *quick], tmp_path / "log", settings):
        sent = [app.send_task("worker_celery.send_invoice", [n]) for n in (1, 2, 3, 4)]
        assert sent[0].get(timeout=120) == "invoice 1 was sent"
        for result, error in zip(
            sent[1:],
            [requests.HTTPError, requests.ConnectionError, requests.HTTPError],
            strict=True,
        ):
            with pytest.raises(error):
                result.get(timeout=120)
    assert [server.count(f"/invoices/{n}") for n in (1, 2, 3, 4)] == [2, 3, 2, 1]
    log = (tmp_path / "log").read_text(encoding="utf-8")
    notes = [line for line in log.splitlines() if line.startswith("mainstay: ")]
    assert notes[0] == f"mainstay: gave up on send_invoice {NO_ATTEMPT_LEFT}"
    assert notes[1].startswith("mainstay: gave up on send_invoice after 2 attempts: not retryable")
    assert "the POST without an Idempotency-Key may have been carried out" in notes[1]
    assert "is permanent (status 404)" in notes[2]


# --- boto3 ----------------------------------------------------------------------------------------

AWS = {
    "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull,
}  # fmt: skip


@pytest.fixture(scope="module")
def bucket():
    """The S3 of moto behind a front that fails, with a bucket."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    with ServiceStub(upstream=moto.get_host_and_port()) as stub:
        s3 = boto3.client(
            "s3", endpoint_url=stub.url, region_name="us-east-1", aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )  # fmt: skip
        s3.create_bucket(Bucket="shop")
        stub.stored = lambda key: s3.get_object(Bucket="shop", Key=key)["Body"].read()
        yield stub
    moto.stop()


def s3_error(status, code):
    """As in "Error responses" of the Amazon S3 API Reference."""
    return Answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


def upload(url, path):
    path.write_bytes(b"an invoice")
    return ran("upload_boto3", "shop", str(path), AWS_ENDPOINT_URL=url, **AWS)


def test_an_uploader_with_boto3_survives_slow_down_and_a_reset(bucket, tmp_path):
    """Three requests, and the file is there whole; botocore's own retries are off."""
    bucket.answers(s3_error(503, "SlowDown"), RESET)
    screen = upload(bucket.url, tmp_path / "invoice")
    assert (screen.status, screen.lines) == (0, ["uploaded invoice"])
    assert bucket.count == 3
    assert bucket.stored("invoice") == b"an invoice"


def test_an_uploader_with_boto3_does_not_repeat_a_refusal(bucket, tmp_path):
    """One request; boto3 wraps the error, and the note is on what it wraps."""
    bucket.answers(s3_error(403, "AccessDenied"))
    screen = upload(bucket.url, tmp_path / "invoice")
    assert (screen.status, bucket.count) == (1, 1)
    assert "AccessDenied is auth" in screen.note


def test_an_uploader_with_boto3_gives_up_on_a_dead_port(tmp_path):
    """Three attempts, and not the nine of two retries."""
    screen = upload(f"http://127.0.0.1:{dead_port()}", tmp_path / "invoice")
    assert screen.status == 1
    assert f"gave up on PutObject {NO_ATTEMPT_LEFT}" in screen.note


# --- SQLAlchemy -----------------------------------------------------------------------------------

TABLES = """
CREATE TABLE accounts (name text PRIMARY KEY, balance int CHECK (balance >= 0));
INSERT INTO accounts VALUES ('tea', 100), ('milk', 0);
CREATE SEQUENCE asked;  -- which no rollback sets back
CREATE FUNCTION refuse_twice() RETURNS trigger AS $$ BEGIN
    IF nextval('asked') <= 2 THEN RAISE 'busy' USING ERRCODE = 'serialization_failure'; END IF;
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER refuses BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION refuse_twice();
"""


def transfer(url, amount):
    dialect = url.replace("postgresql://", "postgresql+psycopg://")
    return ran("transfer_sqlalchemy", "tea", "milk", amount, DATABASE_URL=dialect)


def test_a_job_with_sqlalchemy_repeats_the_transaction(postgres_database):
    """Refused twice, and the money is moved once; what a constraint refuses is asked for once."""
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(TABLES)
        screen = transfer(postgres_database, "5")
        assert (screen.status, screen.lines) == (0, ["moved 5 from tea to milk"])
        rows = database.execute("SELECT * FROM accounts").fetchall()
        assert dict(rows) == {"tea": 95, "milk": 5}
        assert database.execute("SELECT last_value FROM asked").fetchone() == (4,)
        screen = transfer(postgres_database, "500")
        assert screen.status == 1
        assert "IntegrityError is permanent (a constraint refuses the data)" in screen.note
        assert database.execute("SELECT last_value FROM asked").fetchone() == (5,)


def test_a_job_with_sqlalchemy_gives_up_on_a_server_that_resets():
    """Three connections, and the note below the error of SQLAlchemy."""
    with FaultProxy("127.0.0.1", dead_port()) as proxy:
        proxy.reset()
        screen = transfer(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", "5")
        assert (screen.status, proxy.connections) == (1, 3)
    assert f"gave up on transfer {NO_ATTEMPT_LEFT}" in screen.note


# --- redis ----------------------------------------------------------------------------------------


def prices(port):
    url = f"redis://127.0.0.1:{port}/8"
    return ran("prices_redis", "tea", REDIS_URL=url, REDIS_TIMEOUT="60")


@pytest.fixture
def valkey(valkey_url):
    with redis.Redis.from_url(f"{valkey_url.rpartition('/')[0]}/8") as client:
        client.flushdb()
        client.config_resetstat()
        yield client
        client.flushdb()


def times(client, command):
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def test_a_cache_with_redis_survives_a_lost_answer(valkey):
    """The server had the command twice, over two connections."""
    port = valkey.connection_pool.connection_kwargs["port"]
    with FaultProxy("127.0.0.1", port) as proxy:
        proxy.drop_reply_once(b"GET")
        screen = prices(proxy.port)
        assert proxy.connections == 2
    assert (screen.status, screen.lines) == (0, ["tea 3"])
    assert (times(valkey, "get"), times(valkey, "set")) == (2, 1)


def test_a_cache_with_redis_does_not_repeat_what_the_server_refuses(valkey):
    """A list is no price, the second time neither."""
    valkey.rpush("price:tea", 1)
    screen = prices(valkey.connection_pool.connection_kwargs["port"])
    assert (screen.status, times(valkey, "get")) == (1, 1)
    assert "ResponseError is permanent (the server refuses the command" in screen.note


def test_a_cache_with_redis_gives_up_on_a_dead_port():
    """The note names redis."""
    screen = prices(dead_port())
    assert screen.status == 1
    assert f"gave up on redis {NO_ATTEMPT_LEFT}" in screen.note


# --- Kafka ----------------------------------------------------------------------------------------


def publish(servers, within):
    milliseconds = str(int(within * 1000))
    return ran(
        "publish_kafka", "news", given="one\n", KAFKA_SERVERS=servers, KAFKA_TIMEOUT_MS=milliseconds
    )


def test_a_producer_of_kafka_publishes_after_a_refusal_and_not_without_permission():
    """The first is repeated by librdkafka itself; the second is raised after one request."""
    with MockCluster() as cluster:
        cluster.topic("news")
        cluster.fail("Produce", KafkaError.NOT_ENOUGH_REPLICAS)
        screen = publish(cluster.bootstrap, within=60)
        assert (screen.status, screen.lines) == (0, ["published one"])
        assert cluster.requests("Produce") == 2
        cluster.forget()
        cluster.fail("Produce", KafkaError.TOPIC_AUTHORIZATION_FAILED)
        screen = publish(cluster.bootstrap, within=60)
        assert (screen.status, cluster.requests("Produce")) == (1, 1)
        assert f"KafkaException is auth (the user may not do that), {UNNAMED}" in screen.note


def test_a_producer_of_kafka_gives_up_on_a_dead_port():
    """Three messages that were not delivered in time; the lines before are librdkafka's."""
    screen = publish(f"127.0.0.1:{dead_port()}", within=0.2)
    assert screen.status == 1
    assert f"gave up on publish {NO_ATTEMPT_LEFT}" in screen.note


# --- OpenAI ---------------------------------------------------------------------------------------

COMPLETIONS = "/v1/chat/completions"


def model_answer(text):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    content = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return Status(200, IN_JSON, json.dumps({**content, "choices": [choice]}).encode())


def model_error(status, code, **headers):
    """As in "Error codes" of the API's guide."""
    content = {"error": {"message": "no", "type": code, "code": code, "param": None}}
    return Status(status, {**IN_JSON, **headers}, json.dumps(content).encode())


def ask(url):
    settings = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k", "OPENAI_TIMEOUT": "2"}
    return ran("ask_openai", "What is a hawser?", **settings)


def test_a_caller_of_openai_survives_a_rate_limit_and_a_timeout(server):
    """Three requests: those of mainstay, and none of the client's own."""
    limit = model_error(429, "rate_limit_exceeded", **{"retry-after-ms": "5"})
    server.on(COMPLETIONS, limit, Silence(), model_answer("A rope."))
    screen = ask(server.url)
    assert (screen.status, screen.lines) == (0, ["A rope."])
    assert server.count() == 3


@pytest.mark.parametrize(
    ("answer", "count", "note"),
    [
        (model_error(429, "insufficient_quota"), 1, "RateLimitError is permanent"),
        (Reset(), 3, NO_ATTEMPT_LEFT),
    ],
    ids=["no credit", "reset"],
)
def test_a_caller_of_openai_gives_up(server, answer, count, note):
    """Waiting brings no credit; a server that resets is asked three times, not nine."""
    server.on(COMPLETIONS, answer)
    screen = ask(server.url)
    assert (screen.status, server.count()) == (1, count)
    assert note in screen.note
