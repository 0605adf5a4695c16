"""`acpterm provider`: it lists the providers, and changes one line of the settings file."""

import json

import pytest
import tomlkit

from acpterm.agents.provider_choice import ProviderRow, text_of
from acpterm.config.edit import set_value
from acpterm.providers.provider import NAMES
from tests.support.commands import run

NOWHERE = "/nowhere/agent.sock"


async def test_set_changes_nothing_else_in_the_settings(tmp_path):
    file = tmp_path / "config.toml"
    before = "# mine\nrows = 50 # lines\n\n[agent_env]\nA = 'b'\n"
    file.write_text(before)
    file.chmod(0o640)
    status, out, err = await run(NOWHERE, "provider", "set", "bubblewrap", "--config", str(file))
    assert (status, err) == (0, "")
    assert str(file) in out
    assert "acpterm restart" in out
    assert file.read_text() == 'provider = "bubblewrap"\n' + before
    assert file.stat().st_mode & 0o777 == 0o640
    status, out, _ = await run(NOWHERE, "provider", "get", "--config", str(file))
    assert (status, out) == (0, "bubblewrap\n")
    words = ("provider", "set", "local", "--config", str(file), "--json")
    status, out, _ = await run(NOWHERE, *words)
    assert json.loads(out) == {"provider": "local", "file": str(file)}
    assert file.read_text() == 'provider = "local"\n' + before
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


async def test_set_refuses_an_unknown_provider(tmp_path):
    file = tmp_path / "config.toml"
    status, _, err = await run(NOWHERE, "provider", "set", "jail", "--config", str(file))
    assert status == 2
    assert "bubblewrap" in err
    assert not file.exists()


@pytest.mark.parametrize(
    ("installed", "image", "why"),
    [
        (False, False, "podman is not installed: install it (Debian packages: podman and crun)"),
        (False, True, "podman is not installed: install it (Debian packages: podman and crun)"),
        (True, False, "podman: there is no image: set the setting image"),
    ],
)
async def test_set_names_the_first_thing_missing(tmp_path, installed, image, why):
    file, programs = tmp_path / "config.toml", tmp_path / "bin"
    programs.mkdir()
    if installed:
        (programs / "podman").symlink_to("/bin/false")
    before = 'image = "busybox"\n' if image else ""
    file.write_text(before)
    words = ("provider", "set", "podman", "--config", str(file))
    status, out, err = await run(NOWHERE, *words, PATH=str(programs))
    assert (status, out) == (1, "")
    assert err == f"acpterm: the provider is not changed: {why}\n"
    assert file.read_text() == before


async def test_set_refuses_a_file_that_is_not_toml(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("rows =\n")
    status, _, err = await run(NOWHERE, "provider", "set", "local", "--config", str(file))
    assert (status, file.read_text()) == (1, "rows =\n")
    assert "is not TOML" in err


async def test_select_needs_a_terminal():
    status, _, err = await run(NOWHERE, "provider", "select")
    assert status == 1
    assert "acpterm provider set" in err


@pytest.mark.long
async def test_list_tries_each_provider():
    status, out, _ = await run(NOWHERE, "provider", "list", "--json")
    found = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert tuple(found) == NAMES
    assert [name for name, row in found.items() if row["selected"]] == ["local"]
    assert found["local"]["works"]
    assert found["local"]["isolation"] == "none"
    assert found["podman"]["found"]
    _, out, _ = await run(NOWHERE, "provider", "list")
    assert out.startswith("* local")


async def test_list_separates_the_columns_of_a_long_name(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[ssh.a-place-with-a-long-name]\nhost = "127.0.0.1"\nconfig = "/nowhere"\n')
    status, out, _ = await run(NOWHERE, "provider", "list", "--config", str(file))
    words = [line.split()[:3] for line in out.splitlines()]
    assert (status, words[0][:2]) == (0, ["*", "local"])
    assert words[-2] == ["ssh:a-place-with-a-long-name", "none", "fails"]


def test_file_is_created_and_a_link_is_kept(tmp_path):
    target, link = tmp_path / "dotfiles" / "config.toml", tmp_path / "config.toml"
    link.symlink_to(target)
    set_value(str(link), "provider", "landlock")
    assert tomlkit.parse(target.read_text()) == {"provider": "landlock"}
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600


def test_list_is_folded_to_the_width_of_the_window_and_whole_elsewhere():
    rows = [
        ProviderRow("local", "none", True, True, "as you"),
        ProviderRow("podman", "", False, False, "one " * 40 + "end"),
    ]
    lines = text_of(rows, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0] == "* local   none  works    as you"
    assert lines[-1].startswith(" " * 25 + "one")
    assert " ".join(" ".join(lines[1:]).split()) == "podman missing " + "one " * 40 + "end"
    assert text_of(rows).splitlines()[1].endswith("one " * 40 + "end")
