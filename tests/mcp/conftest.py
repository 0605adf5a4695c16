"""Fixtures of the tests of the MCP tools."""

import pytest


@pytest.fixture
def bash_without_rc(monkeypatch, tmp_path):
    """Let persistent shells be a bash that reads no files of the user."""
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("HOME", str(tmp_path))
