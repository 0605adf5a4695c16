"""The button beside an ended command that restores its directory."""

import os

import pytest

from acpterm.undo.store import Store
from tests.support.polling import poll_blocking


@pytest.fixture
def project(daemon, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("one\n")
    (project / "change").write_text("#!/bin/sh\necho two > a.py\nchmod 700 change\n")
    (project / "change").chmod(0o755)
    store = Store(daemon.request("status")["undoDir"], str(project))
    with store.locked():
        store.keep("before a command")
    return project


def changed(daemon, agent, project):
    """Run the command; return its terminal, or None if it began before its snapshot was complete.

    That happens on a busy machine.
    """
    (project / "a.py").write_text("one\n")
    (project / "change").chmod(0o755)
    terminal = agent.create("./change", cwd=str(project))
    agent.terminal("wait_for_exit", terminal)
    return None if "unkept" in daemon.info(terminal) else terminal


def test_undo_shows_the_difference_asks_and_restores(page, daemon, agent, project):
    page.show_terminal(poll_blocking(lambda: changed(daemon, agent, project)))
    page.page.get_by_role("button", name="Bring the directory back").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_text("a.py | 2 +-").wait_for()
    assert "mode change" in dialog.inner_text()
    if directory := os.environ.get("ACPTERM_PICTURES"):
        page.page.screenshot(path=f"{directory}/undo.png")
    page.confirm("Cancel")
    assert (project / "a.py").read_text() == "two\n"

    page.page.get_by_role("button", name="Bring the directory back").click()
    page.confirm("Restore")
    page.page.get_by_text("Restored.").first.wait_for()
    assert (project / "a.py").read_text() == "one\n"
    assert (project / "change").stat().st_mode & 0o777 == 0o755


def test_a_program_that_runs_has_no_button_to_undo(page, agent, project):
    page.show_terminal(agent.create("sleep", "1000", cwd=str(project)))
    page.page.get_by_role("button", name="Kill the program").wait_for()
    assert page.page.get_by_role("button", name="Bring the directory back").is_hidden()
