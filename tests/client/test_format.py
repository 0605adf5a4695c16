"""How the user's commands describe the end of a program."""

from acpterm.acp.user_api import ExitInfo
from acpterm.client.user.format import ended_by


def test_limit_that_ended_a_program_is_named_with_its_value():
    assert ended_by(ExitInfo(None, "SIGTERM", "user", 5)) == "by user"
    status = ExitInfo(None, "SIGTERM", "idle", 5, limit="idle", limit_value=300.0)
    assert ended_by(status) == "by idle: idle = 300"
    status = ExitInfo(None, "SIGKILL", "limit", 5, limit="memory", limit_value=16777216)
    assert ended_by(status) == "by limit: memory = 16777216"
