"""openai and anthropic: rows of their tables that the other tests do not come to.

Most are of what the clients do besides asking a model: tools, files, credentials. They are raised
by the real libraries.
"""

import json
import types
from pathlib import Path

import anthropic
import anthropic._response
import anthropic.lib.credentials._providers as anthropic_credentials
import anthropic.lib.credentials._secrets as anthropic_secrets
import anthropic.lib.tools._file_store as file_store
import anthropic.lib.tools._toolsets._base as toolsets
import anthropic.lib.tools._toolsets._browser as anthropic_browser
import anthropic.lib.tools._toolsets._pipeline as pipeline
import anthropic.lib.tools._toolsets._registry as registry
import openai
import openai._extras
import openai._response
import openai._send_queue
import openai.lib._module_runtime
import openai.lib.beta.agents._result as agents
import openai.lib.browser
import openai.lib.computer
import pytest
from anthropic.lib.tools import _beta_builtin_memory_tool as memory

from tests.integrations.errors.model_server import ModelServer, answer
from tests.integrations.errors.rows import comes_to


@pytest.fixture(scope="module")
def server():
    server = ModelServer()
    server.begin(answer(200, {"id": "x"}))
    yield server
    server.close()


# --- anthropic ------------------------------------------------------------------------------------

Browser = anthropic_browser.BetaAbstractBrowserToolset20260801


class Driver(Browser):
    """A browser with one member."""

    def screenshot(self, *_args, **_options):
        raise RuntimeError("no screen")

    def _browser_state(self):
        return None


class Async(Driver):
    async def screenshot(self, *_args, **_options):
        """The synchronous class cannot await it."""


def resolved(name, **options):
    made = Driver(**options)
    return made._toolset_options.resolve(name)


def consumed(server, library):
    with library(api_key="k", base_url=server.url, max_retries=0) as client:
        headers = {"X-Stainless-Raw-Response": "stream"}
        answered = client.post("/x", cast_to=object, options={"headers": headers}, stream=True)
        list(answered.iter_bytes())
        answered.read()


def streamed(server, library):
    with library(api_key="k", base_url=server.url, max_retries=0) as client:
        client._default_stream_cls = None
        client.post("/x", cast_to=object, stream=True)


def upload(**options):
    made = registry.BROWSER.members["file_upload"].input(
        target={"type": "ref", "ref": "r"}, **options
    )
    record = types.SimpleNamespace(input=made)
    pipeline.resolve_upload_paths(record, None)


def memory_path(folder):
    tool = memory.BetaLocalFilesystemMemoryTool(base_path=str(folder))
    return tool._validate_path("/elsewhere")


ANTHROPIC = {
    "anthropic.AnthropicError": lambda _: anthropic.Anthropic(api_key="k").beta.webhooks.unwrap(
        "{}", headers={}
    ),
    "anthropic.CredentialsError": lambda _: anthropic_credentials._coerce_expires_at("soon", None),
    "_secrets._NonObjectPayloadError": lambda _: anthropic_secrets._wrap_secret_fields([]),
    "_file_store.FileStoreError": lambda _: file_store.FileStore(
        Path("/none"), False
    )._resolve_under_root("../x"),
    "_base.AsyncOnSyncToolsetError": lambda _: Async(),
    "_errors.ToolsetConfigError": lambda _: Driver(tool_configs={"configs": {}}),
    "_errors.UnknownMemberError": lambda _: resolved("fly"),
    "_errors.UnavailableMemberError": lambda _: resolved("navigate"),
    "_errors.DisabledMemberError": lambda _: resolved(
        "screenshot", configs={"screenshot": {"enabled": False}}
    ),
    "_errors.ConfirmDeclinedError": lambda _: toolsets.confirm_outcome("x", False, None),
    "_errors.ConfirmFailedError": lambda _: toolsets.confirm_outcome("x", None, OSError()),
    "_errors.URLRefusedError": lambda _: pipeline.policy_outcome(None, OSError()),
    "_errors.ToolsetContractError": lambda _: pipeline.policy_outcome(True, None),
    "_errors.UploadNoRootsError": lambda _: upload(paths=["/x"]),
    "_errors.UploadRefusedError": lambda _: upload(document_ids=["d"]),
    "_errors.InvalidMemberInputError": lambda _: toolsets.parse_input(
        registry.BROWSER.members["navigate"], {"url": 7}, family=registry.BROWSER.family
    ),
    "anthropic._response.StreamAlreadyConsumed": lambda s: consumed(s, anthropic.Anthropic),
    "anthropic._response.MissingStreamClassError": lambda s: streamed(s, anthropic.Anthropic),
}


@pytest.mark.parametrize("row", ANTHROPIC)
def test_anthropic(server, row):
    """Tools, files and credentials."""
    comes_to(row, lambda: ANTHROPIC[row](server))


def test_a_memory_of_files(tmp_path):
    """A tool that the library brings refuses a path."""
    comes_to("_beta_functions.ToolError", lambda: memory_path(tmp_path))


# --- openai ---------------------------------------------------------------------------------------


def both_clients():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai, "_client", None)
        patch.setattr(openai, "api_type", None)
        patch.setenv("OPENAI_API_KEY", "k")
        patch.setenv("AZURE_OPENAI_API_KEY", "k")
        openai.lib._module_runtime.load_client()


def azure_twice():
    openai.AzureOpenAI(
        api_key="k", azure_ad_token="t", api_version="1", azure_endpoint="http://127.0.0.1:1"
    )


def full_queue():
    openai._send_queue.SendQueue(1).enqueue("too long")


def unsent():
    receipt = openai._send_queue.SendReceipt()
    receipt.unsent = ["x"]
    receipt.raise_if_unsent()


def parsed():
    agents.AgentTurnResult(turn=None, messages=[], output_parsed=None).parse(int)


def filtered(server):
    """An error in the middle of a stream, which has no status any more."""
    event = {"error": {"code": "content_filter", "message": "filtered", "type": "invalid"}}
    stream = f"data: {json.dumps(event)}\n\n"
    server.begin(answer(200, stream, content_type="text/event-stream"))
    with openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        list(client.chat.completions.create(model="m", messages=[], stream=True))


OPENAI = {
    "openai.APIError code content_filter": filtered,
    "openai._extras._common.MissingDependencyError": lambda _: openai._extras.sounddevice.query(),
    "openai._AmbiguousModuleClientUsageError": lambda _: both_clients(),
    "openai.lib.azure.MutuallyExclusiveAuthError": lambda _: azure_twice(),
    "openai.WebSocketQueueFullError": lambda _: full_queue(),
    "openai.WebSocketConnectionClosedError": lambda _: unsent(),
    "openai.lib.browser.BrowserError": lambda _: openai.lib.browser._arguments("x", "{"),
    "openai.lib.browser.BrowserCancelledError": lambda _: openai.lib.browser._check_cancelled(
        lambda: True
    ),
    "openai.lib.computer.ComputerUseError": lambda _: openai.lib.computer._snapshot_call([]),
    "openai.lib.beta.agents._result.AgentOutputParseError": lambda _: parsed(),
    "openai._response.StreamAlreadyConsumed": lambda s: consumed(s, openai.OpenAI),
    "openai._response.MissingStreamClassError": lambda s: streamed(s, openai.OpenAI),
}


@pytest.mark.parametrize("row", OPENAI)
def test_openai(server, row):
    """Tools, files and credentials."""
    comes_to(row, lambda: OPENAI[row](server))
