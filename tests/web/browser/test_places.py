"""Terminals on a cluster in a browser: where they run, and that they wait in its queue."""

import tempfile
from pathlib import Path

import pytest

from tests.support import slurm
from tests.support.daemon import blocking_daemon

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def shared_cluster():
    if slurm.MISSING:
        pytest.skip(f"requires {', '.join(slurm.MISSING)}: apt-get install slurm-wlm munge")
    with (
        tempfile.TemporaryDirectory(prefix="acpterm-slurm-") as directory,
        slurm.running(Path(directory), 1) as running,
    ):
        yield running


@pytest.fixture
def cluster(shared_cluster):
    """Return a cluster without a job."""
    shared_cluster.cancel_all()
    return shared_cluster


@pytest.fixture
def daemon(tmp_path, cluster):
    """Run a daemon with the place `slurm:box`."""
    with tempfile.TemporaryDirectory(prefix="acpterm-test-") as runtime:
        config = tmp_path / "config.toml"
        config.write_text(f'[slurm.box]\nconfig = "{cluster.config}"\ncpus = 1\n')
        settings = {
            "ACPTERM_CONFIG": str(config),
            "XDG_RUNTIME_DIR": runtime,
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        with blocking_daemon(tmp_path / "daemon", **settings) as running:
            yield running


def facts(page):
    """Return what is shown above the screen."""
    names = page.view.locator(".term-meta dt").all_inner_texts()
    return dict(zip(names, page.view.locator(".term-meta dd").all_inner_texts(), strict=True))


def test_queued_terminal_is_shown_with_its_place_and_then_with_its_node(page, create, cluster):
    full = cluster.fill()
    terminal = create("sh", "-c", "echo ran; read x; exit 3", provider="slurm:box")
    row = page.row("echo ran")
    row.wait_for()
    assert row.locator(".cell-state").inner_text() == "queued"
    assert row.locator(".cell-where").inner_text() == "slurm:box"
    assert page.page.locator("#list .list-summary").inner_text() == "1 queued"
    page.show_terminal(terminal)
    state = page.view.locator(".term-state")
    assert state.inner_text() == "queued"
    assert facts(page)["Where"] == "slurm:box"
    assert page.button("Kill the program").is_visible()
    # It arrives when the program has started.
    page.type("typed\r")
    cluster.cancel(full)
    page.until_drawn("ran")
    page.until(lambda: state.inner_text() == "exited 3")
    assert row.locator(".cell-where").inner_text() == "slurm:box (n0)"
    assert facts(page)["Where"] == "slurm:box (n0)"


def test_queued_terminal_is_killed_by_its_button(page, create, cluster):
    full = cluster.fill()
    terminal = create("sleep", "1000", provider="slurm:box")
    page.row("queued").wait_for()
    page.show_terminal(terminal)
    page.button("Kill the program").click()
    page.confirm("Kill")
    page.until(lambda: "queued" not in page.view.locator(".term-state").inner_text())
    cluster.cancel(full)
    page.until(lambda: not cluster.jobs())
