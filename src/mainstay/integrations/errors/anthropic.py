"""anthropic: the error code in the body of an answer decides, then its status, then its type.

The type comes last: the service uses invalid_request_error for statuses of several kinds. An error
inside a stream has the status 200 of its beginning, and is known by its type alone. A connection
error wraps one of httpx2 (httpx, before version 2), which decides.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.core.retry.retry_after import parse
from mainstay.integrations.errors.model_api import (
    CREDENTIALS,
    LATE,
    LOST,
    MISUSE,
    NO_RETRIES,
    RETRIES,
    STATUSES,
    header,
    milliseconds,
    only_computes,
    status_cases,
)
from mainstay.integrations.errors.shared import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_OVERLOADED = "overloaded_error"
_TAKEN = Row(Kind.PERMANENT, "the name is taken")
_REFUSAL = Row(Kind.PERMANENT, "a refusal that the model is to read")

_CODES: dict[str | int, Row] = {
    "enforced_spend_limit_reached": Row(
        Kind.PERMANENT, "the account has used up its month; waiting does not help"
    ),
    "ramp_limit_exceeded": Row(Kind.THROTTLED, "usage grows faster than the limit"),
    "external_key_validation_timed_out": Row(
        Kind.TIMEOUT, "refused: a key was not validated in time"
    ),
    "plugin_name_taken": _TAKEN,
    "skill_name_taken": _TAKEN,
    "skill_read_blocked_undecryptable": Row(Kind.PERMANENT, "no key decrypts the skill"),
    "slack_channel_set_up_settings_conflict": Row(
        Kind.PERMANENT, "done in part, and changed by another user since"
    ),
    "registration_pending": Row(Kind.OVERLOAD, "stored, and not usable yet", ambiguous=True),
}
_TYPES: dict[str | int, Row] = {
    _OVERLOADED: Row(Kind.OVERLOAD, "the service is overloaded for all of its users"),
    "api_error": Row(Kind.TRANSIENT, "an error inside the service", ambiguous=True),
    "timeout_error": Row(Kind.TIMEOUT, "the service gave no answer in time", ambiguous=True),
    "rate_limit_error": Row(Kind.THROTTLED, "a rate limit of the account"),
    "authentication_error": Row(Kind.AUTH, "a wrong API key"),
    "permission_error": Row(Kind.AUTH, "the API key does not permit it"),
    "billing_error": Row(Kind.PERMANENT, "a payment is missing; waiting does not help"),
    "invalid_request_error": Row(Kind.PERMANENT, "the request is not valid, such as too long"),
    "not_found_error": Row(Kind.PERMANENT, "there is no such thing"),
    "request_too_large": Row(Kind.PERMANENT, "the request is too large"),
}


def _cases(exception: Any) -> Iterable[str | int | None]:
    kind = attribute(exception, "type")
    if kind is None:  # before the client had the attribute
        kind = exception.body["error"]["type"] if _has_type(exception.body) else None
    overloaded = _OVERLOADED if kind == _OVERLOADED else None
    return (attribute(exception, "error_code"), overloaded, *status_cases(exception), kind)


def _has_type(body: object) -> bool:
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def _reset(exception: Any) -> object:
    """When the limits that are used up are whole again: the latest date of their headers."""
    if attribute(exception, "status_code") != 429:
        return None
    after = milliseconds(exception)
    if after is not None:
        return after
    limits = ("requests", "tokens", "input-tokens", "output-tokens")
    resets = [
        header(exception, f"anthropic-ratelimit-{each}-reset") or ""
        for each in limits
        if header(exception, f"anthropic-ratelimit-{each}-remaining") == "0"
    ]
    return parse(max(resets, default=None), header(exception, "date"))


_STATUS_CLASSES = """
    AuthenticationError BadRequestError CMEKContextUnavailableError CMEKKeyDisabledError
    CMEKKeyNetworkBlockedError CMEKKeyUnreachableError ClaudeCodeKeyCreatorNotMemberError
    ClaudeCodeVersionTooOldError ClientClosedRequestError ConflictError ContentTooLargeError
    EnforcedSpendLimitReachedError GatewayTimeoutError HTTPNotImplementedError
    InternalServerError NotFoundError OrganizationOnHoldError OrganizationTypeNotSupportedError
    OverloadedError PermissionDeniedError PreconditionFailedError RampLimitExceededError
    RateLimitError RequestBodyEncodingInvalidError RequestBodyEncodingUnsupportedError
    RequestBodyTooLargeAfterDecodingError RequestHeaderFieldsTooLargeError RequestTimeoutError
    SandboxEgressRestrictedError ServiceUnavailableError UnprocessableEntityError
""".split()
_TYPED = """
    available_tools_limit_exceeded_error.AvailableToolsLimitExceededError
    beta.beta_environment_archived_error.BetaEnvironmentArchivedError
    beta.beta_environment_create_disabled_error.BetaEnvironmentCreateDisabledError
    beta.beta_environment_not_found_error.BetaEnvironmentNotFoundError
    beta.beta_environment_update_disabled_error.BetaEnvironmentUpdateDisabledError
    beta.beta_invalid_config_type_change_error.BetaInvalidConfigTypeChangeError
    beta.beta_invalid_metadata_error.BetaInvalidMetadataError
    beta.environments.beta_heartbeat_precondition_failed_error.BetaHeartbeatPreconditionFailedError
    beta.organization.beta_api_key_scope_missing_error.BetaAPIKeyScopeMissingError
    beta.organization.beta_cannot_sign_out_managed_member_error.BetaCannotSignOutManagedMemberError
    beta.organization.beta_cannot_sign_out_membership_admin_error.BetaCannotSignOutMembershipAdminError
    beta.organization.beta_cannot_sign_out_owner_error.BetaCannotSignOutOwnerError
    beta.organization.beta_cannot_sign_out_primary_owner_error.BetaCannotSignOutPrimaryOwnerError
    beta.organization.beta_cannot_sign_out_privileged_member_error.BetaCannotSignOutPrivilegedMemberError
    beta.organization.beta_cannot_sign_out_self_error.BetaCannotSignOutSelfError
    beta.organization.beta_claude_tag_writes_not_enabled_error.BetaClaudeTagWritesNotEnabledError
    beta.organization.beta_compliance_configuration_restricted_error.BetaComplianceConfigurationRestrictedError
    beta.organization.beta_organization_level_scoped_api_key_required_error.BetaOrganizationLevelScopedAPIKeyRequiredError
    beta.organization.beta_plugin_name_taken_error.BetaPluginNameTakenError
    beta.organization.beta_registration_pending_error.BetaRegistrationPendingError
    beta.organization.beta_scan_failed_error.BetaScanFailedError
    beta.organization.beta_scan_pending_error.BetaScanPendingError
    beta.organization.beta_skill_name_taken_error.BetaSkillNameTakenError
    beta.organization.beta_slack_channel_set_up_environment_not_found_error.BetaSlackChannelSetUpEnvironmentNotFoundError
    beta.organization.beta_slack_channel_set_up_settings_conflict_error.BetaSlackChannelSetUpSettingsConflictError
    beta.organization.beta_slack_channel_set_up_settings_refused_error.BetaSlackChannelSetUpSettingsRefusedError
    beta.organization.beta_spend_limits_admin_api_writes_not_enabled_error.BetaSpendLimitsAdminAPIWritesNotEnabledError
    beta_organization_not_enrolled_in_beta_error.BetaOrganizationNotEnrolledInBetaError
    beta_unsupported_charset_error.BetaUnsupportedCharsetError
    compaction_block_ambiguous_error.CompactionBlockAmbiguousError
    compaction_block_misplaced_error.CompactionBlockMisplacedError
    compaction_content_mismatch_error.CompactionContentMismatchError
    compaction_incomplete_turn_error.CompactionIncompleteTurnError
    compaction_nothing_to_summarize_error.CompactionNothingToSummarizeError
    compaction_signature_invalid_error.CompactionSignatureInvalidError
    compaction_too_many_tool_references_error.CompactionTooManyToolReferencesError
    compaction_tool_changes_mismatch_error.CompactionToolChangesMismatchError
    compaction_unavailable_error.CompactionUnavailableError
    concurrent_membership_change_error.ConcurrentMembershipChangeError
    file_expired_error.FileExpiredError file_not_downloadable_error.FileNotDownloadableError
    org_member_limit_exceeded_error.OrgMemberLimitExceededError
    organization.already_member_error.AlreadyMemberError
    organization.cannot_invite_emails_with_unverified_domains_error.CannotInviteEmailsWithUnverifiedDomainsError
    organization.cannot_remove_last_member_error.CannotRemoveLastMemberError
    organization.email_domain_not_allowed_error.EmailDomainNotAllowedError
    organization.external_key_changed_error.ExternalKeyChangedError
    organization.external_key_in_workspace_policy_error.ExternalKeyInWorkspacePolicyError
    organization.external_key_validation_failed_error.ExternalKeyValidationFailedError
    organization.external_key_validation_timed_out_error.ExternalKeyValidationTimedOutError
    organization.invite_already_exists_error.InviteAlreadyExistsError
    organization.key_profile_mismatch_error.KeyProfileMismatchError
    organization.org_api_key_limit_exceeded_error.OrgAPIKeyLimitExceededError
    organization.rbac_group_grants_owner_access_error.RBACGroupGrantsOwnerAccessError
    organization.rbac_group_owner_access_unconfirmed_error.RBACGroupOwnerAccessUnconfirmedError
    organization.workspace_api_key_limit_exceeded_error.WorkspaceAPIKeyLimitExceededError
    organization.workspace_member_limit_exceeded_error.WorkspaceMemberLimitExceededError
    organization.workspace_policy_violation_error.WorkspacePolicyViolationError
    skill_read_blocked_undecryptable_error.SkillReadBlockedUndecryptableError
    storage_quota_exceeded_error.StorageQuotaExceededError
    thread_already_continued_error.ThreadAlreadyContinuedError
    thread_continue_in_flight_error.ThreadContinueInFlightError
    thread_fingerprint_mismatch_error.ThreadFingerprintMismatchError
    thread_not_found_error.ThreadNotFoundError
    thread_unsupported_request_error.ThreadUnsupportedRequestError
    tool_name_conflict_error.ToolNameConflictError
    tool_reference_unresolved_error.ToolReferenceUnresolvedError
    user_profile_not_found_error.UserProfileNotFoundError
""".split()
"""One of each error code; the code decides, so that versions without the class judge alike."""
_USAGE = """
    _toolsets._base.AsyncOnSyncToolsetError _toolsets._base.NestedCallError
    _toolsets._base.SyncOnAsyncToolsetError _toolsets._browser.BrowserStateError
    _toolsets._errors.ToolsetClosedError _toolsets._errors.ToolsetConfigError
    _toolsets._errors.ToolsetContractError _toolsets._errors.ToolsetUsageError
    _toolsets._errors.ToolsetsFixedError
""".split()
_REFUSALS = """
    _beta_functions.ToolError _toolsets._errors.ConfirmDeclinedError
    _toolsets._errors.ConfirmFailedError _toolsets._errors.DisabledMemberError
    _toolsets._errors.InvalidMemberInputError _toolsets._errors.TabMissingError
    _toolsets._errors.URLRefusedError _toolsets._errors.UnavailableMemberError
    _toolsets._errors.UnknownMemberError _toolsets._errors.UploadNoRootsError
    _toolsets._errors.UploadOutsideRootsError _toolsets._errors.UploadRefusedError
""".split()

_SAME = Same("anthropic.APIStatusError")
_STATUS_CLASSES_BEFORE = """
    DeadlineExceededError RequestTooLargeError _exceptions.DeadlineExceededError
    _exceptions.OverloadedError _exceptions.RequestTooLargeError _exceptions.ServiceUnavailableError
""".split()
_FIRST = ("anthropic.api.ApiException", "anthropic.tokenizer.TokenizerException")
_STREAM_CLASS_BEFORE = "anthropic._legacy_response.MissingStreamClassError"
OTHER_VERSIONS = (
    *(f"anthropic.{name}" for name in _STATUS_CLASSES_BEFORE),
    _STREAM_CLASS_BEFORE,
    *_FIRST,
)

TABLE = Table(
    "anthropic",
    {
        "anthropic.AnthropicError": Row(
            Kind.PERMANENT, "the client cannot be used as it is set up, such as without a key"
        ),
        "anthropic.APIError": Row(Kind.UNKNOWN, "a base class, which anthropic does not raise"),
        "anthropic.APIStatusError": Cases(
            _cases,
            {**STATUSES, **_TYPES, **_CODES},
            otherwise=Row(Kind.UNKNOWN, "no status, no code and no type are known"),
        ),
        **{f"anthropic.{name}": _SAME for name in (*_STATUS_CLASSES, *_STATUS_CLASSES_BEFORE)},
        **{f"anthropic.types.{name}": _SAME for name in _TYPED},
        "anthropic.APIConnectionError": Inner("__cause__", otherwise=LOST),
        "anthropic.APITimeoutError": Inner("__cause__", otherwise=LATE),
        "anthropic.APIResponseValidationError": Row(
            Kind.PERMANENT, "the answer is not what this version of the client knows"
        ),
        "anthropic.APIWebhookValidationError": Row(
            Kind.PERMANENT, "the message is not signed with the secret of this webhook"
        ),
        "anthropic.RetryableError": Inner(
            "__cause__", otherwise=Row(Kind.TRANSIENT, "middleware of the program asks to repeat")
        ),
        "anthropic.CredentialsError": CREDENTIALS,
        "anthropic.IdentityTokenFileError": CREDENTIALS,
        "anthropic.lib.credentials._workload.WorkloadIdentityError": by_status(
            Inner("__cause__", otherwise=CREDENTIALS)
        ),
        "anthropic.lib.credentials._secrets._NonObjectPayloadError": CREDENTIALS,
        "anthropic._response.MissingStreamClassError": MISUSE,
        _STREAM_CLASS_BEFORE: MISUSE,
        _FIRST[0]: Row(Kind.UNKNOWN, "the answer is in its text alone, as of version 0.2"),
        _FIRST[1]: MISUSE,
        "anthropic._response.StreamAlreadyConsumed": MISUSE,
        "anthropic.lib._extras._common.MissingDependencyError": MISUSE,
        "anthropic.lib.foundry.MutuallyExclusiveAuthError": MISUSE,
        "anthropic.lib.tools._file_store.FileStoreError": _REFUSAL,
        "anthropic.lib.tools._memories.SessionMemoryError": Inner(
            "__cause__", otherwise=Row(Kind.PERMANENT, "a memory store cannot be written to disk")
        ),
        **{f"anthropic.lib.tools.{name}": MISUSE for name in _USAGE},
        **{f"anthropic.lib.tools.{name}": _REFUSAL for name in _REFUSALS},
    },
    retries=RETRIES,
    hint=_reset,
    changes_nothing=only_computes,
    own_retries=OwnRetries(
        lambda error: counted(error, "retries_taken", "anthropic._base_client") + 1, NO_RETRIES
    ),
)
