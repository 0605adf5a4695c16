"""The MCP client of the official TypeScript SDK uses a terminal, on stdio and over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from tests.interop.sdks import report_of, typescript
from tests.support.processes import environment
from tests.support.starting import ACPTERM
from tests.support.web import web_daemon

# Installing the SDK can take longer than the timeout of other tests.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SETTINGS = {"profile": "guarded", "mcp_elicitation_approves": "true"}


@pytest.mark.parametrize("version", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_typescript_client_uses_a_terminal(tmp_path, transport, version):
    (node, driver) = typescript()
    async with web_daemon(tmp_path, settings=SETTINGS) as web:
        server: dict[str, Any] = {"url": f"{web.origin}/mcp", "token": web.agent_token}
        if transport == "stdio":
            command, *words = ACPTERM
            server = {"command": command, "args": [*words, "mcp", "--socket", web.daemon.path]}
            server["env"] = environment(XDG_CONFIG_HOME=str(tmp_path / "none"))
        command = [node, str(Path(driver).with_name("mcp.mjs"))]
        plan = {"version": version, "server": server}
        report = await report_of(command, plan, 100, cwd=tmp_path)
    assert report["version"] == ("2025-11-25" if version == "legacy" else version)
    assert "terminal_bash" in report["tools"]
    assert report["bash"]["text"].endswith(" s, exit code 3]\nhi\n")
    assert report["wrong"] == -32602
    assert report["continued"]["text"].endswith("Output:\nhi\nhi\n")
    assert report["updated"]
    assert report["resource"] == "hi\nhi\n"
    assert report["asked"] == 1
    assert report["dangerous"]["text"].startswith("[exited ")
    assert "10 s" in report["progress"]
    assert report["slow"]["text"].endswith("done\n")
    assert not report["stopped"]["isError"]
