"""The errors of the front doors: those of the effects document, which users raise themselves."""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Row, Table

_ERRORS = "mainstay.profiles.errors."

TABLE = Table(
    "mainstay.profiles",
    {
        f"{_ERRORS}InfraError": Row(Kind.UNKNOWN, "a base class, which nothing here raises"),
        f"{_ERRORS}InfraConnectionError": Row(
            Kind.TRANSIENT, "the service cannot be reached for now"
        ),
        f"{_ERRORS}InfraTimeoutError": Row(Kind.TIMEOUT, "no answer in time"),
        f"{_ERRORS}InfraUnavailableError": Row(Kind.OVERLOAD, "the service cannot serve for now"),
        f"{_ERRORS}InfraAuthenticationError": Row(
            Kind.AUTH, "credentials, permissions or keys are not right"
        ),
        f"{_ERRORS}InfraDataIntegrityError": Row(
            Kind.PERMANENT, "a constraint of the data is violated"
        ),
        f"{_ERRORS}ProtocolConfigurationError": Row(
            Kind.PERMANENT, "the request, the schema or the configuration is wrong"
        ),
        f"{_ERRORS}SecretResolutionError": Row(Kind.PERMANENT, "what it names is not there"),
        f"{_ERRORS}CircuitOpenException": Row(Kind.OVERLOAD, "a circuit is open"),
        f"{_ERRORS}InfraCircuitOpenError": Row(Kind.OVERLOAD, "a circuit is open"),
    },
    packages=("mainstay.profiles",),
    retries="none",
)
