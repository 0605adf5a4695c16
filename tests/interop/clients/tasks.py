"""Twenty tasks of three agents, and the same tasks with their own tools: docs/mcp-tasks.md."""

import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.clients.clients import BUILD, CLIENTS, ROOT
from tests.interop.clients.model import Call
from tests.interop.clients.run import run

TIMEOUT_S = 240
PAGE = ROOT / "docs" / "mcp-tasks.md"
SHOWN_CHARACTERS = 1200
Steps = list[list[Call]]


def one(name: str, **arguments: object) -> list[Call]:
    return [(name, arguments)]


def start(command: str) -> list[Call]:
    return one("terminal_start", command=command)


def bash(command: str, **more: object) -> list[Call]:
    return one("terminal_bash", command=command, **more)


def type_(stdin: str, *keys: str) -> list[Call]:
    more = {"keys": list(keys)} if keys else {}
    return one("terminal_continue", sessionId="ID", stdin=stdin, **more)


STOP = one("terminal_stop", sessionId="ID")


def claude(command: str, **more: object) -> list[Call]:
    return one("Bash", command=command, **more)


def codex(cmd: str, *, tty: bool = False, wait_ms: int = 5000) -> list[Call]:
    return one("exec_command", cmd=cmd, tty=tty, yield_time_ms=wait_ms)


def chars(text: str, wait_ms: int = 1000) -> list[Call]:
    return one("write_stdin", session_id="ID", chars=text, yield_time_ms=wait_ms)


@dataclass
class Task:
    title: str
    ours: Steps
    claude: Steps | None = None
    """The same with Claude Code's tool, as far as it can do it without typing."""
    codex: Steps | None = None


def tasks(ports: list[int]) -> list[Task]:
    serve = "python3 -u -m http.server --bind 127.0.0.1 {}".format
    get = "curl -sS -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{}/".format
    secret = "read -rsp 'Password: ' word; echo; echo welcome"
    keygen = "ssh-keygen -t ed25519 -f key"
    # Claude Code sets the editors of git to `true`.
    rebase = "GIT_SEQUENCE_EDITOR='vim -u NONE' git rebase -i HEAD~2"
    debug = "gdb -q -nx /bin/sleep"
    much, line = "seq 12000000 | head -c 100000000", "head -c 10000000 /dev/zero | tr '\\0' x; echo"
    build = "echo step 1; sleep 5; echo BUILD DONE; sleep 60"
    venv = "python3 -m venv --without-pip env && . env/bin/activate && cd env"
    where = "pwd; command -v python3"
    slow = "sleep 1; echo {}".format
    never, wrong = "tail -f /dev/null", "if true; then echo"
    job = f"{never} & echo $! > job; echo started"
    # With a tool that does not wait: the command writes to a file, and the next one reads it.
    built = "until grep -q 'BUILD DONE' log; do sleep 0.2; done"
    return [
        Task(
            "A development server, and curl",
            [start(serve(ports[0])), bash(get(ports[0])), STOP],
            [claude(serve(ports[1]), run_in_background=True), claude(f"sleep 1; {get(ports[1])}")],
            [codex(serve(ports[2]), tty=True, wait_ms=1000), codex(get(ports[2])), chars("\x03")],
        ),
        Task(
            "A REPL",
            [start("python3 -q"), type_("6 * 7\n"), type_("exit()\n")],
            None,
            [codex("python3 -q", tty=True, wait_ms=1000), chars("6 * 7\n"), chars("exit()\n")],
        ),
        Task(
            "A prompt for a password",
            [bash(secret), STOP],
            None,
            [codex(secret, tty=True, wait_ms=1000), chars("\x03")],
        ),
        Task(
            "git rebase -i",
            [start(rebase), type_(":wq\n")],
            [claude("git rebase -i HEAD~2")],
            [codex(rebase, tty=True, wait_ms=1000), chars(":wq\n")],
        ),
        Task(
            "npm init",
            [start("npm init"), *[type_("\n")] * 11],
            [claude("npm init -y")],
            [codex("npm init", tty=True, wait_ms=2000), *[chars("\n")] * 11],
        ),
        Task(
            "ssh-keygen",
            [start(keygen), type_("\n"), type_("\n")],
            [claude(f"{keygen} -N ''")],
            [codex(keygen, tty=True, wait_ms=1000), chars("\n"), chars("\n")],
        ),
        Task(
            "An edit with vim",
            [start("vim -u NONE note.txt"), type_("ihello", "Escape"), type_(":wq\n")],
            None,
            [
                codex("vim -u NONE note.txt", tty=True, wait_ms=1000),
                chars("ihello\x1b"),
                chars(":wq\n"),
            ],
        ),
        Task(
            "gdb",
            [start(debug), type_("print 6 * 7\n"), type_("quit\n")],
            [claude(f"{debug} -batch -ex 'print 6 * 7'")],
            [codex(debug, tty=True, wait_ms=2000), chars("print 6 * 7\n"), chars("quit\n")],
        ),
        Task("100 MB of output", [bash(much)], [claude(much)], [codex(much, wait_ms=30000)]),
        Task("A line of 10 MB", [bash(line)], [claude(line)], [codex(line, wait_ms=30000)]),
        Task(
            "Ctrl-C",
            [start("sleep 1000"), type_("", "C-c")],
            None,
            [codex("sleep 1000", tty=True, wait_ms=1000), chars("\x03")],
        ),
        Task(
            "A background job",
            [bash(job), STOP],
            [claude(job), claude("kill $(cat job)")],
            [codex(job), codex("kill $(cat job)")],
        ),
        Task(
            "A wait for a pattern",
            [start(build), one("terminal_wait", sessionId="ID", pattern="BUILD DONE"), STOP],
            [
                claude(f"({build}) > log", run_in_background=True),
                claude(built),
                one("TaskStop", task_id="ID"),
            ],
            [codex(build, tty=True, wait_ms=1000), chars("", 5000), chars("\x03")],
        ),
        Task(
            "A session with cd and a virtual environment",
            [bash(venv, session="dev"), bash(where, session="dev")],
            [claude(venv), claude(where)],
            [codex("bash", tty=True, wait_ms=1000), chars(f"{venv}\n", 5000), chars(f"{where}\n")],
        ),
        Task("A syntax error", [bash(wrong)], [claude(wrong)], [codex(wrong)]),
        Task(
            "A wrong id",
            [one("terminal_continue", sessionId="term-99", stdin="x\n")],
            [one("TaskStop", task_id="b99")],
            [one("write_stdin", session_id=99, chars="x\n")],
        ),
        Task("A denial by the policy", [bash("git push origin main")]),
        Task("An approval, which the user gives", [bash("rmdir gone")]),
        Task(
            "Two calls at once",
            [bash(slow("one")) + bash(slow("two"))],
            [claude(slow("one")) + claude(slow("two"))],
            [codex(slow("one")) + codex(slow("two"))],
        ),
        Task(
            "A command that never ends",
            [bash(never, timeout_seconds=3), STOP],
            [claude(never, timeout=3000)],
            [codex(never, tty=True, wait_ms=3000), chars("\x03")],
        ),
    ]


def _ports(count: int) -> list[int]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


Results = list[list[str] | None]


def results(client: str, all_tasks: list[Task], kind: Callable[[Task], Steps | None]) -> Results:
    """Run the tasks in one conversation of an agent; return what the model was given in each."""
    ran = run(CLIENTS[client], [step for task in all_tasks for step in kind(task) or []], TIMEOUT_S)
    if ran.end or ran.missing:
        print(f"{client}: {ran.end or 'all results'}, missing tools: {ran.missing or 'none'}")
    rest, found = ran.results, Results()
    for task in all_tasks:
        steps = kind(task)
        count = sum(map(len, steps or []))
        found.append(rest[:count] if steps and len(rest) >= count else None)
        rest = rest[count:]
    return found


OURS = "claude", "codex", "opencode"
OWN: dict[str, Callable[[Task], Steps | None]] = {
    "claude": lambda task: task.claude,
    "codex": lambda task: task.codex,
}


def _size(texts: list[str] | None) -> int | None:
    return None if texts is None else len("".join(texts).encode())


def _cell(size: int | None) -> str:
    return "—" if size is None else f"{size:,}"


def _abbreviated(text: str) -> str:
    text = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
    # The directory of the run.
    text = re.sub(re.escape(str(BUILD)) + r"/run-\w+", "…", text)
    left = len(text) - SHOWN_CHARACTERS
    half = SHOWN_CHARACTERS // 2
    return text if left < 100 else f"{text[:half]}\n[… {left:,} characters …]\n{text[-half:]}"


def _calls(task: Task) -> list[Call]:
    return [call for step in task.ours for call in step]


def _section(number: int, task: Task, given: list[str] | None) -> list[str]:
    lines = [f"## {number}. {task.title}", ""]
    for n, (name, arguments) in enumerate(_calls(task)):
        call = json.dumps(arguments, ensure_ascii=False)
        lines += [f"`{name}` `` {call} ``", "", "```text"]
        lines += [_abbreviated(given[n]).strip("\n") if given else "(no result)", "```", ""]
    return lines


def write_tasks(page: Path = PAGE) -> None:
    """Run everything, and write the page; each run takes at most `TIMEOUT_S` seconds."""
    all_tasks = tasks(_ports(3 * 3))
    for name in OURS:
        if error := CLIENTS[name].install():
            print(f"{CLIENTS[name].title}: {error}")
    ours: dict[str, Results] = {}
    for name in OURS:
        ours[name] = results(name, all_tasks, lambda task: task.ours)
    own = {name: results(name, all_tasks, kind) for name, kind in OWN.items()}
    versions = ", ".join(f"{CLIENTS[n].title} {CLIENTS[n].version}" for n in OURS)
    heads = [CLIENTS[name].title for name in OURS]
    heads += ["`Bash` of Claude Code", "`exec_command` of Codex"]
    lines = [
        "<!-- Generated by tests/interop/clients: run `make clients`, do not edit. -->",
        "",
        "# Twenty tasks, and what the model is given",
        "",
        f"{versions},",
        "set up by `acpterm setup` in an empty home, with a scripted model. The table has the",
        "bytes of all results of a task with the tools of acpterm, then with the agent's own tool.",
        "A token is about four bytes. Below the table is what Claude Code's model was given; long",
        "texts are shortened in the middle. The tools do not always say the same:",
        "",
        "- `Bash` cannot type into a program. In tasks 4, 5, 6 and 8 its command has the answers",
        "  as options; — is where there are none. It does not name what a command leaves running,",
        "  nor how to end it (12), forgets the virtual environment and does not say where `cd` has",
        "  led (14), and puts long output into a file (9, 10). In tasks 15 and 19, the difference",
        "  is the shell's own message, the state of a failure (34 bytes), and line ends.",
        "- `exec_command` returns the codes that a full-screen program has sent by then, not what",
        "  is on the screen (4, 7). Codex puts 33 bytes before each result of an MCP tool: the",
        "  difference in task 16.",
        "- A denial and an approval (17, 18) are those of acpterm's policy.",
        "",
        f"| task | {' | '.join(heads)} |",
        "| --- |" + " --- |" * len(heads),
    ]
    for n, task in enumerate(all_tasks):
        sizes = [_size(ours[name][n]) for name in OURS] + [_size(own[name][n]) for name in OWN]
        lines.append(f"| {n + 1}. {task.title} | {' | '.join(map(_cell, sizes))} |")
    lines.append("")
    for n, task in enumerate(all_tasks):
        lines += _section(n + 1, task, ours["claude"][n])
    page.write_text("\n".join(lines).rstrip("\n") + "\n")
    _print_own(own, all_tasks)


def _print_own(own: dict[str, Results], all_tasks: list[Task]) -> None:
    """Print what the agents' own tools returned, which the page has only as sizes."""
    for name, found in own.items():
        for task, texts in zip(all_tasks, found, strict=True):
            for text in texts or []:
                print(f"--- {name}, {task.title}\n{_abbreviated(text)}")
