"""What an effect talks to, and the context that its errors carry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker

if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue


class EnumInfraTransportType(str, Enum):  # noqa: UP042 -- hash and repr stay those of an enum
    """The kinds of infrastructure; the first five have settings of their own.

    >>> EnumInfraTransportType.KAFKA.value
    'kafka'
    """

    DATABASE = "database"
    KAFKA = "kafka"
    HTTP = "http"
    VAULT = "vault"
    CONSUL = "consul"
    GRPC = "grpc"
    NATS = "nats"
    REDIS = "redis"
    S3 = "s3"
    RUNTIME = "runtime"

    __str__ = str.__str__


KINDS = frozenset(each.value for each in EnumInfraTransportType)


def transport_of(kind: UserValue) -> EnumInfraTransportType:
    """The member of that name or value; raises PolicyError for anything else.

    >>> transport_of("vault")
    <EnumInfraTransportType.VAULT: 'vault'>
    """
    check = Checker("effect")
    found = check.choice("kind", kind, [each.value for each in EnumInfraTransportType])
    check.close()
    return EnumInfraTransportType(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfraErrorContext:
    """Where an error came from: the transport, the operation, the target and the request.

    >>> context = ModelInfraErrorContext(
    ...     transport_type=EnumInfraTransportType.KAFKA, operation="publish", target_name="broker")
    >>> str(context)
    'kafka, operation publish, target broker'
    """

    transport_type: EnumInfraTransportType | None = None
    operation: str | None = None
    target_name: str | None = None
    correlation_id: object = None
    """A UUID or a text."""

    def __post_init__(self) -> None:
        if self.transport_type is not None:
            object.__setattr__(self, "transport_type", transport_of(self.transport_type))
        check = Checker("ModelInfraErrorContext")
        check.instance("operation", self.operation, str)
        check.instance("target_name", self.target_name, str)
        check.close()

    def __str__(self) -> str:
        named = {
            "operation": self.operation, "target": self.target_name, "request": self.correlation_id,
        }  # fmt: skip
        first = [] if self.transport_type is None else [self.transport_type.value]
        return ", ".join(first + [f"{name} {value}" for name, value in named.items() if value])
