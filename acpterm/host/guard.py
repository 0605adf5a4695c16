"""What an agent's command has to pass before it runs, and where that is recorded."""

from typing import Final

from acpterm.host.approvals import ApprovalRecords, ApproverTokens
from acpterm.host.audit_trail import AuditTrail
from acpterm.host.policy import HostPolicy
from acpterm.host.quotas import Quotas
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.writer import StateWriter
from acpterm.policy.approvals import Approvals


class Guard:
    """The policy, the questions to the user, the quotas and the audit log of a host."""

    def __init__(
        self,
        policy: HostPolicy,
        trail: AuditTrail,
        registry: TerminalRegistry,
        writer: StateWriter,
        *,
        reaches_user: bool,
    ) -> None:
        self.policy: Final = policy
        self.trail: Final = trail
        self.approvals: Final = Approvals()
        self.approval_records: Final = ApprovalRecords(writer)
        self.approvals.add(self.approval_records)
        self.approver_tokens: Final = ApproverTokens()
        self.quotas: Final = Quotas(registry)
        self.reaches_user: Final = reaches_user
