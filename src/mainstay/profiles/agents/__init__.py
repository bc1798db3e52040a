"""The front door for agents: an executor of operations by type, tools, files, and their policies.

A tool is a command that is run, bounded in time, retried, and ended with all it started. A file
operation is any function on files: locked and busy files are retried, what is missing or forbidden
is not. `mainstay exec` is the same for a shell.
"""

from __future__ import annotations

from mainstay.core.circuit.breaker import CircuitState
from mainstay.drivers.call.result import RetryResult
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.registry import STANDARD
from mainstay.profiles.agents.executor import RetryExecutor, RetryOptions
from mainstay.profiles.agents.files import file_operation, read_file, write_file
from mainstay.profiles.agents.parts import (
    AGGRESSIVE,
    CIRCUIT_BREAKER,
    NO_RETRY,
    BackoffCalculator,
    BackoffStrategy,
    CircuitBreaker,
    ICircuitBreaker,
    IPolicyRegistry,
    IRetryExecutor,
    PolicyRegistry,
)
from mainstay.profiles.agents.tools import ToolResult, run_tool
from mainstay.profiles.errors import CircuitOpenException
from mainstay.sinks.agent_log import AgentLog

__all__ = [
    "AGGRESSIVE",
    "CIRCUIT_BREAKER",
    "NO_RETRY",
    "STANDARD",
    "AgentLog",
    "BackoffCalculator",
    "BackoffStrategy",
    "CircuitBreaker",
    "CircuitOpenException",
    "CircuitState",
    "ICircuitBreaker",
    "IPolicyRegistry",
    "IRetryExecutor",
    "PolicyRegistry",
    "RetryExecutor",
    "RetryOptions",
    "RetryPolicy",
    "RetryResult",
    "ToolResult",
    "file_operation",
    "read_file",
    "run_tool",
    "write_file",
]
