"""The user's hooks: commands that run when a question, a waiting program or an end wants the user.

The settings `on_question`, `on_waiting` and `on_end` have the commands. Without `on_question`, a
question that no client shows to the user is a desktop notification, if there is `notify-send`, and
rings the bell of each attached window.

Hooks run as the user, beside the daemon's work: one that fails, or takes longer than `TIMEOUT_S`,
is logged, and nothing waits for it.
"""

import html
import os
import shutil
from functools import partial
from typing import Final

import msgspec
import structlog
import trio

from acpterm.acp.base import Wire
from acpterm.config import Settings
from acpterm.host.approvals import approval_info
from acpterm.host.events import EventBus
from acpterm.host.windows import Windows
from acpterm.policy.approvals import Approvals
from acpterm.policy.questions import Answer, Question
from acpterm.runtime.command_line import find_shell
from acpterm.runtime.sanitize import shortened

TIMEOUT_S: Final = 10.0
# Hooks that run at once; further ones are dropped, so that a flood of events starts no flood of
# processes.
_RUNNING_MAX: Final = 8
_SENTENCE_CHARS_MAX: Final = 300

_log = structlog.get_logger("acpterm.hooks")


class Hooks:
    """Runs the hooks of a host. Implements `policy.approvals.Observer`."""

    def __init__(
        self, settings: Settings, approvals: Approvals, bus: EventBus, windows: Windows
    ) -> None:
        self._settings: Final = settings
        self._approvals: Final = approvals
        self._bus: Final = bus
        self._windows: Final = windows
        self._nursery: trio.Nursery | None = None
        self._running = 0
        self._directory: Final = os.path.expanduser("~")

    async def run(self) -> None:
        commands = {"waiting": self._settings.on_waiting, "exited": self._settings.on_end}
        async with trio.open_nursery() as self._nursery:
            with self._approvals.subscribe(self):
                if not any(commands.values()):
                    await trio.sleep_forever()
                with self._bus.subscribe(lambda event: bool(commands.get(event.event))) as events:
                    while True:
                        event = await events.next()
                        info, command = event.terminal, commands[event.event]
                        if info is not None and command:
                            does = info.waiting_program or "waits for input"
                            does = does if event.event == "waiting" else "has ended"
                            self._start_hook(command, f"{info.name or info.command}: {does}", info)

    def attends(self, question: Question) -> bool:
        del question
        return False

    def asked(self, question: Question) -> None:
        command = self._settings.on_question
        asks = f"{question.agent or 'An agent'} asks to run: {question.command}"
        if command:
            self._start_hook(command, asks, approval_info(question))
        elif command is None and not self._approvals.is_attended(question):
            self._windows.ring()
            if program := shutil.which("notify-send"):
                title = "A command waits for your approval"
                # Many desktops read markup in the text.
                text = f"{html.escape(_sentence(asks))}\nacpterm approvals -f"
                self._start([program, "--app-name=acpterm", "--", title, text], b"")

    def closed(self, question: Question, answer: Answer) -> None: ...

    def _start_hook(self, command: str, sentence: str, info: Wire) -> None:
        """Start a hook: `$1` is the sentence, and stdin has `info` as JSON."""
        shell = find_shell(self._settings.shell)
        # A dash is not the beginning of an option of the hook's command.
        self._start(
            [shell, "-c", command, "acpterm", _sentence(sentence)], msgspec.json.encode(info)
        )

    def _start(self, argv: list[str], stdin: bytes) -> None:
        if self._nursery is None or self._running >= _RUNNING_MAX:
            _log.warning("a hook was dropped: too many run", command=argv[0])
            return
        self._running += 1
        self._nursery.start_soon(self._run, argv, stdin)

    async def _run(self, argv: list[str], stdin: bytes) -> None:
        run = partial(trio.run_process, argv, stdin=stdin, check=False, cwd=self._directory)
        try:
            with trio.move_on_after(TIMEOUT_S) as limit:
                done = await run(capture_stdout=True, capture_stderr=True)
            if limit.cancelled_caught:
                _log.warning("a hook was ended: it took too long", command=argv[-3:])
            elif done.returncode:
                text = done.stderr.decode(errors="replace")[-_SENTENCE_CHARS_MAX:]
                _log.warning("a hook has failed", status=done.returncode, stderr=text)
        except OSError as error:
            _log.warning("a hook could not be started", error=str(error))
        finally:
            self._running -= 1


def _sentence(text: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in text)
    return shortened(line, _SENTENCE_CHARS_MAX)
