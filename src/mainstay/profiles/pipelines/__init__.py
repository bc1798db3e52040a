"""The front door for data pipelines: stages, runs, governance, ledgers, telemetry, compliance.

Energy and CO2 are a model's figures, never a measurement: the telemetry file that a record refers
to holds method, parameters and scope.
"""

from mainstay.config.files.governance import read_governance
from mainstay.core.pipeline.governance import DatasetRule, GovernanceRules
from mainstay.core.pipeline.ledger import Flaw, Ledger, LedgerEntry, verify, verify_together
from mainstay.core.pipeline.view import RunView, StageView
from mainstay.core.telemetry.energy import EnergyModel, Statement
from mainstay.core.telemetry.record import Telemetry, TelemetryRecord
from mainstay.drivers.pipeline.context import StageContext
from mainstay.drivers.pipeline.ledger_files import read_ledger
from mainstay.drivers.pipeline.runs import PipelineRuns, RunResult
from mainstay.errors import (
    FailFastError,
    GovernanceBlocked,
    GovernanceViolation,
    ImmutabilityViolation,
    LedgerError,
    LicenseViolation,
    LineageMismatch,
    PipelineHalted,
    RetryForbidden,
    SchemaValidationError,
)
from mainstay.profiles.pipelines.compliance import (
    SCHEMAS,
    ComplianceRecord,
    compliance_records,
    label,
    schema,
)
from mainstay.profiles.pipelines.governance import Governance
from mainstay.profiles.pipelines.pipeline import PATHS, Pipeline
from mainstay.profiles.pipelines.stage import PIPELINE_POLICY, Stage
from mainstay.sinks.telemetry.file import read_telemetry
from mainstay.sinks.telemetry.sink import TelemetrySink

__all__ = [
    "PATHS",
    "PIPELINE_POLICY",
    "SCHEMAS",
    "ComplianceRecord",
    "DatasetRule",
    "EnergyModel",
    "FailFastError",
    "Flaw",
    "Governance",
    "GovernanceBlocked",
    "GovernanceRules",
    "GovernanceViolation",
    "ImmutabilityViolation",
    "Ledger",
    "LedgerEntry",
    "LedgerError",
    "LicenseViolation",
    "LineageMismatch",
    "Pipeline",
    "PipelineHalted",
    "PipelineRuns",
    "RetryForbidden",
    "RunResult",
    "RunView",
    "SchemaValidationError",
    "Stage",
    "StageContext",
    "StageView",
    "Statement",
    "Telemetry",
    "TelemetryRecord",
    "TelemetrySink",
    "compliance_records",
    "label",
    "read_governance",
    "read_ledger",
    "read_telemetry",
    "schema",
    "verify",
    "verify_together",
]
