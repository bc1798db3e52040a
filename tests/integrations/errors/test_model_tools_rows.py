"""openai and anthropic: rows of tools, files and tokens that a service or a program brings about.

Each is raised by the real library: a stub on loopback answers, or the program uses it wrongly.
"""

import asyncio
import sys
import types

import anthropic
import anthropic.lib.tools._memories as memories
import anthropic.lib.tools._toolsets._browser as anthropic_browser
import anthropic.lib.tools._toolsets._pipeline as pipeline
import anthropic.lib.tools._toolsets._registry as registry
import anthropic.lib.tools._toolsets._runnable as runnable
import anthropic.lib.tools._toolsets._security as security
import openai
import openai.auth
import openai.lib.decisions_tool_runner as decisions
import openai.lib.responses_tool_runner as responses
import openai.lib.responses_websocket as websockets
import pytest

from mainstay import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.model_server import ModelServer, answer
from tests.integrations.errors.rows import comes_to, raised_by, row_of

BUSY = answer(503, {"error": {"message": "m", "type": "server_error", "code": None}})


@pytest.fixture(scope="module")
def server():
    server = ModelServer()
    yield server
    server.close()


# --- anthropic ------------------------------------------------------------------------------------

Context = runnable.BetaToolsetCallContext


class Browser(anthropic_browser.BetaAbstractBrowserToolset20260801):
    """A browser that calls itself; it does not report its state."""

    def screenshot(self, *_args, **_options):
        return self.call(Context(), "screenshot", {})

    def _browser_state(self, _context):
        raise RuntimeError("as asked")


class Mixed(anthropic_browser.BetaAsyncAbstractBrowserToolset20260801):
    def screenshot(self, *_args, **_options):
        """The asynchronous class would block its loop."""

    async def _browser_state(self, _context):
        return None


def closed():
    made = Browser()
    made.close()
    made.call(Context(), "screenshot", {})


def nested():
    """The library raises it in the member, which hands it on."""
    Browser().call(Context(), "screenshot", {})


def no_state():
    Browser().call(Context(), "nothing", {})


def fixed():
    with anthropic.Anthropic(api_key="k", base_url="http://127.0.0.1:1") as client:
        made = client.beta.messages.tool_runner(
            max_tokens=9, messages=[], model="m", tools=[Browser()], stream=False
        )
        made.add_tools(Browser())


def outside():
    made = registry.BROWSER.members["file_upload"].input(
        target={"type": "ref", "ref": "r"}, paths=["/elsewhere/x"]
    )
    record = pipeline.CallRecord(context=Context(), name="file_upload", raw_input={})
    record.input, record.member = made, registry.BROWSER.members["file_upload"]
    pipeline.resolve_upload_paths(record, security.BetaLocalFilePolicy(upload_roots=["/uploads"]))


def no_google():
    """As on a machine that lacks google-auth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "google.auth", None)
        anthropic.AnthropicVertex(region="r", project_id="p").messages.create(
            max_tokens=9, messages=[], model="m"
        )


USAGE = {
    "_base.NestedCallError": nested,
    "_base.SyncOnAsyncToolsetError": Mixed,
    "_browser.BrowserStateError": no_state,
    "_errors.ToolsetClosedError": closed,
    "_errors.ToolsetsFixedError": fixed,
    "_errors.UploadOutsideRootsError": outside,
    "anthropic.lib._extras._common.MissingDependencyError": no_google,
}


@pytest.mark.parametrize("row", USAGE)
def test_anthropic(row):
    """A toolset that is used wrongly, and what is not installed."""
    comes_to(row, USAGE[row])


def downloaded(server, folder, mount):
    """The memory store of a session, which belongs on the disk at `mount`."""

    async def download():
        store = types.SimpleNamespace(
            type="memory_store", mount_path=mount, memory_store_id="s", access="rw", name=None
        )
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=server.url, max_retries=0
        ) as client:
            stores = memories.SessionMemoryStores(client, workdir=folder)
            await stores.download(types.SimpleNamespace(resources=[store]))

    return download()


def test_a_memory_store(server, tmp_path):
    """The service that does not answer decides; a path that cannot be used is final."""
    row = "anthropic.lib.tools._memories.SessionMemoryError"
    server.begin(BUSY)
    comes_to(f"{row} wraps", lambda: downloaded(server, tmp_path, str(tmp_path / "memory")))
    error = comes_to(f"{row} otherwise", lambda: downloaded(server, tmp_path, "../memory"))
    assert kind_of(error).kind is Kind.PERMANENT


# --- openai ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        assert client.beta.agents.environments.files  # it loads 700 modules
        yield client


def prepared(client, tmp_path):
    (tmp_path / "file").write_text("x")
    client.beta.agents.environments.files.prepare({"/workspace/file": tmp_path / "file"})


def staged(client, server):
    server.begin(answer(200, {"id": "f", "object": "file"}), BUSY)
    files = client.beta.agents.environments.files
    files.upload("e", file=("file", b"x"), path="/workspace/file")


def turn(client, server):
    """A stream that ends before the turn does."""
    server.begin(answer(200, "event: x\n\n", content_type="text/event-stream"))
    made = client.beta.agents.sessions.create(
        environment={"type": "none"}, agent_id="a", stream=True
    )
    made.get_final_result()


def decided(client, observe):
    made = decisions.DecisionsToolRunner(observe=observe, candidates=lambda _seen: [])
    made.run(client, {"model": "m", "input": "i"})


def answered(client, **options):
    made = responses.ResponsesToolRunner(functions=[])
    made.run(client, {"model": "m", "input": "i"}, **options)


def cancelled():
    raise asyncio.CancelledError


def streamed(client):
    """Without a class for the stream, as a raw answer."""
    headers = {"X-Stainless-Raw-Response": "true"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_default_stream_cls", None)
        client.post("/x", cast_to=object, options={"headers": headers}, stream=True).parse()


def lanes():
    """More of them than the program allows; no connection is needed to refuse."""
    limits = dict.fromkeys(websockets.ResponsesWebSocketLimits.__dataclass_fields__, 1)
    made = websockets.ResponsesWebSocketSession(
        object(), limits=websockets.ResponsesWebSocketLimits(**limits)
    )
    made.lane("second")


SESSION = "responses_websocket._session"
OPENAI = {
    "_files.AgentFilePreparationError": lambda c, s, path: prepared(c, path),
    "_files.AgentFileStagingError": lambda c, s, path: staged(c, s),
    "_result.AgentTurnResultError": lambda c, s, path: turn(c, s),
    "DecisionsToolRunnerError": lambda c, s, path: decided(c, lambda: "seen"),
    "DecisionsToolRunnerCancelledError": lambda c, s, path: decided(c, cancelled),
    "responses_tool_runner.ToolRunnerError": lambda c, s, path: answered(c),
    "responses_tool_runner.ToolRunnerCancelledError": lambda c, s, path: answered(
        c, cancelled=cancelled
    ),
    "openai._legacy_response.MissingStreamClassError": lambda c, s, path: streamed(c),
    f"{SESSION}.ResponsesWebSocketBufferError": lambda c, s, path: lanes(),
}


@pytest.mark.parametrize("row", OPENAI)
def test_openai(client, server, tmp_path, row):
    """Agents, tools and streams; the service is busy, if it is asked."""
    server.begin(answer(200, {}) if "Missing" in row else BUSY)
    comes_to(row, lambda: OPENAI[row](client, server, tmp_path))


@pytest.mark.parser
def test_an_event_of_a_websocket_that_is_an_error():
    """The library's own accumulator raises it; its connection needs a package of its own."""
    comes_to(
        f"{SESSION}.ResponsesWebSocketError",
        lambda: websockets.ResponsesWebSocketAccumulator().add_event({"type": "error"}),
    )


def test_a_token_that_a_program_hands_over(tmp_path):
    """The file is empty: the library raises it twice, one inside the other."""
    (tmp_path / "token").touch()
    row = "openai._exceptions.SubjectTokenProviderError"
    given = openai.auth.k8s_service_account_token_provider(str(tmp_path / "token"))
    error = comes_to(f"{row} wraps", given["get_token"])
    assert row_of(error.__cause__)[0] == f"{row} otherwise"
    assert kind_of(error).kind is kind_of(error.__cause__).kind is Kind.AUTH


def exchanged(server, status, **options):
    """A client that has no key: it asks a service for a token first, which answers so."""
    given = {"token_type": "jwt", "get_token": lambda: "t"}
    identity = {"identity_provider_id": "i", "service_account_id": "s", "provider": given}
    server.begin(answer(status, {}))
    with openai.OpenAI(
        workload_identity=identity, base_url=server.url, max_retries=0, **options
    ) as client:
        client._workload_identity_auth.token_exchange_url = server.url
        client.models.list()


@pytest.mark.parametrize(("status", "kind"), [(429, Kind.THROTTLED), (503, Kind.OVERLOAD)])
def test_a_token_service_that_is_busy(server, status, kind):
    """The status is in the text alone; the client itself does not ask again."""
    error = raised_by(lambda: exchanged(server, status))
    assert kind_of(error).kind is kind
    assert len(server.requests) == 1
