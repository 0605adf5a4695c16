"""How the user's commands describe the end of a program."""

from acpterm.acp.user_api import ExitInfo
from acpterm.commands.format import ended_by, reason
from acpterm.terminal.status import EndedBy


def test_limit_that_ended_a_program_is_named_with_its_value():
    assert ended_by(ExitInfo(None, "SIGTERM", "user", wall_ms=5)) == "by user"
    status = ExitInfo(None, "SIGTERM", "idle", wall_ms=5, limit="idle", limit_value=300.0)
    assert ended_by(status) == "by idle: idle = 300"
    status = ExitInfo(None, "SIGKILL", "limit", wall_ms=5, limit="memory", limit_value=16777216)
    assert ended_by(status) == "by limit: memory = 16777216"


def test_end_that_no_user_agent_or_limit_has_caused_is_named():
    reasons = {by: reason(ExitInfo(255, None, by, wall_ms=5)) for by in EndedBy}
    assert {by: text for by, text in reasons.items() if text} == {
        "lost": " (lost)",
        "node_failure": " (node failure)",
        "time_limit": " (time limit)",
        "preempted": " (preempted)",
        "cancelled": " (cancelled)",
        "not_started": " (not started)",
    }
