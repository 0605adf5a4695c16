"""What a workspace of a sandbox may be, and what is protected in it."""

import os
import pwd

import pytest

from acpterm.providers.provider import ProviderError
from acpterm.providers.workspace import Workspace


def test_workspace_is_refused_if_it_contains_the_home_of_the_user_database(monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    real = pwd.getpwuid(os.geteuid())
    entry = pwd.struct_passwd([str(home) if field == real.pw_dir else field for field in real])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    monkeypatch.setenv("HOME", "/nonexistent")
    for path in (home, tmp_path):
        with pytest.raises(ProviderError, match=f"write to {home}"):
            Workspace.of(str(path))
