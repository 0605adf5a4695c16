"""Run a real agent with a scripted model in an empty home."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.interop.clients.clients import BUILD, Client
from tests.interop.clients.model import Call, Model

# The policy refuses one command; that of the profile asks about dangerous ones.
RULE = '[[rule]]\npattern = ["git", "push"]\ndecision = "deny"\nreason = "the remote is shared"\n'


@dataclass
class Run:
    """What the model was given, in the order of the calls."""

    results: list[str]
    tools_at_first: bool | None
    missing: set[str]
    end: str
    """Why the run is incomplete, or an empty text."""


def run(client: Client, steps: list[list[Call]], timeout_s: float) -> Run:
    """Run an agent until it has made all calls, or for `timeout_s` seconds."""
    BUILD.mkdir(parents=True, exist_ok=True)
    # Not below /tmp: Codex warns about a home there.
    base = Path(tempfile.mkdtemp(dir=BUILD, prefix="run-"))
    home, work = base / "h", base / "w"
    home.mkdir()
    _fill(work)
    rules = home / ".config" / "acpterm" / "rules.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text(RULE)
    try:
        with Model(steps) as model, (base / "out").open("wb") as out:
            environment = client.prepare(home, model.url)
            process = subprocess.Popen(
                client.command,
                env=environment,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            over = threading.Event()
            approver = threading.Thread(target=_approve, args=(environment, over))
            approver.start()
            end = ""
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                end = f"did not end in {timeout_s:.0f} s"
            finally:
                over.set()
                approver.join()
                _end(process)
                _end_all(home)
        wanted = sum(map(len, steps))
        if len(model.received) < wanted:
            text = (base / "out").read_text(errors="replace")[-1500:]
            end = end or f"ended with exit code {process.returncode}"
            print(f"{client.title}: {len(model.received)} of {wanted} results, {end}\n{text}")
        else:
            end = ""
        return Run(list(model.received), model.tools_at_first, model.missing, end)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _fill(work: Path) -> None:
    """Make a directory with a git repository of three commits."""
    work.mkdir()
    (work / "gone").mkdir()
    name = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    lines = [["init", "-q", "-b", "main"]]
    lines += [["config", key, "n@example.org"] for key in ("user.name", "user.email")]
    lines += [[*name, "commit", "-q", "--allow-empty", "-m", f"Step {n}"] for n in (1, 2, 3)]
    for line in lines:
        subprocess.run(["git", *line], cwd=work, check=True, timeout=30)


def _approve(environment: dict[str, str], over: threading.Event) -> None:
    """Allow what is asked, as a user would who watches."""
    line = ["acpterm", "approvals", "--json"]
    while not over.wait(1):
        asked = subprocess.run(
            line, env=environment, capture_output=True, check=False, text=True, timeout=30
        )
        for question in json.loads(asked.stdout or "[]"):
            allow = ["acpterm", "approve", str(question["approvalId"])]
            subprocess.run(allow, env=environment, capture_output=True, check=False, timeout=30)


def _end_all(home: Path) -> None:
    """End what the agent left running, which may be in other process groups, and its daemon."""
    mark = f"HOME={home}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
        except OSError:
            continue


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
