"""Write what models are given by real agents into docs/mcp.md: `make clients`.

`python -m tests.interop.clients CLIENT…` runs only some agents, and prints what it got; `tasks`
writes docs/mcp-tasks.md.
"""

import sys
from pathlib import Path

from tests.interop.clients.clients import CLIENTS, ROOT, Client
from tests.interop.clients.model import Call
from tests.interop.clients.run import run
from tests.interop.clients.tasks import write_tasks

CALLS: dict[str, Call] = {
    "a result": ("terminal_bash", {"command": "echo hello; exit 3"}),
    "an error": ("terminal_continue", {"sessionId": "term-99", "stdin": "x\n"}),
    "100 kB of output": ("terminal_bash", {"command": "seq -f 'line %06g' 1 8334"}),
}
TIMEOUT_S = 120
BEGIN, END = "<!-- clients -->\n", "<!-- end of clients -->\n"


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the lines between two markers of a page."""
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page} has no {begin.strip()} … {end.strip()}")
    page.write_text(f"{before}{begin}{text}{end}{after}")


def size(text: str) -> str:
    """Return bytes and, at four bytes each, tokens."""
    count = len(text.encode())
    return f"{count:,} ({count / 4:,.0f})"


def row(client: Client) -> str:
    error = client.install()
    name = f"{client.title} {client.version}"
    if error:
        return f"| {name} | not run: {error} |" + " |" * len(CALLS)
    ran = run(client, [[call] for call in CALLS.values()], TIMEOUT_S)
    for what, text in zip(CALLS, ran.results, strict=False):
        print(f"--- {name}, {what}: {size(text)}\n{text[:400]}", flush=True)
    if not ran.results:
        return f"| {name} | not run: it {ran.end} |" + " |" * len(CALLS)
    shown = ran.results[0].strip().replace("\n", "⏎").replace("|", "\\|")
    shown = shown if len(shown) <= 160 else f"{shown[:160]}…"
    late = "" if ran.tools_at_first else "; no tools at its first request"
    sizes = [size(text) for text in ran.results]
    sizes += [f"none: it {ran.end}"] * (len(CALLS) - len(sizes))
    return f"| {name}{late} | `` {shown} `` | {' | '.join(sizes)} |"


def main(names: list[str]) -> None:
    rows = [row(CLIENTS[name]) for name in names or CLIENTS]
    heads = [f"{what}, bytes (tokens)" for what in CALLS]
    lines = [
        f"| client | a result, as the model sees it | {' | '.join(heads)} |",
        "| --- |" + " --- |" * (1 + len(CALLS)),
        *rows,
    ]
    table = "\n".join(lines) + "\n"
    print(table)
    if not names:
        replace_between(ROOT / "docs" / "mcp.md", BEGIN, END, table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["tasks"]:
        write_tasks()
    else:
        main(sys.argv[1:])
