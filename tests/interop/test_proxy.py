"""The proxy between the official Python SDK's client and the scripted agent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.editor import AGENT, SHOWS, create, of, shown, tool_call, tool_update
from tests.support.processes import environment
from tests.support.starting import ACPTERM

pytestmark = pytest.mark.interop
EDITOR = Path(__file__).parent / "python" / "edit.py"


def edit(directory, *steps, capabilities=None):
    """Run the SDK's editor in front of a proxy; return its report."""
    proxy = [*ACPTERM, "proxy", "--embedded", "--log-level", "error", "--", *AGENT]
    request = {
        "agent": proxy,
        "steps": steps,
        "cwd": str(directory),
        "capabilities": capabilities or {"fs": {"readTextFile": True}},
    }
    done = subprocess.run(
        [sys.executable, str(EDITOR), json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env=environment(XDG_CONFIG_HOME=str(directory)),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_third_party_client_gets_terminals_as_text(tmp_path):
    read = {"do": "ask", "method": "fs/read_text_file", "params": {"path": "/x"}, "report": True}
    permit = {
        "do": "ask",
        "method": "session/request_permission",
        "params": {
            "toolCall": {"toolCallId": "c"},
            "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}],
        },
    }
    report = edit(tmp_path, read, permit, *shown("pwd; echo two | tr a-z A-Z; exit 3"))
    assert report["initialize"]["terminal"] is True
    assert report["ended"] == "end_turn"
    assert report["requests"] == [["read", "/x"], ["permission", "c"]]
    texts = [
        item["content"]["text"]
        for update in report["updates"]
        for item in update.get("content", ())
        if isinstance(item, dict) and item["type"] == "content"
    ]
    assert texts[-1].endswith(f"{tmp_path}\nTWO\n[exit status 3]\n```")
    assert report["extension"]["echo"]["params"] == {"x": [1, None]}
    assert report["status"] == 0


def test_client_with_terminal_output_support_gets_terminals_in_meta(tmp_path):
    report = edit(tmp_path, *shown("echo hi"), capabilities=SHOWS)
    metas = [update.get("_meta") or {} for update in report["updates"]]
    assert any("terminal_info" in meta for meta in metas)
    outputs = [meta["terminal_output"]["data"] for meta in metas if "terminal_output" in meta]
    assert "".join(outputs) == "hi\r\n"
    assert any(meta.get("terminal_exit", {}).get("exit_code") == 0 for meta in metas)


def test_two_terminals_in_one_call_are_shown_in_order(tmp_path):
    both = [{"type": "terminal", "terminalId": name} for name in ("$t", "$u")]
    report = edit(
        tmp_path,
        tool_call(),
        create("sleep 0.2; echo one"),
        create("echo two", "u"),
        tool_update(content=both),
        of("wait_for_exit"),
        of("wait_for_exit", "u"),
        of("release"),
        of("release", "u"),
    )
    last = [update["content"] for update in report["updates"] if update.get("content")][-1]
    assert [item["content"]["text"].splitlines()[-2] for item in last] == ["one", "two"]
