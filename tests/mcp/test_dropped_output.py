"""What results say of output that is longer than what is retained: its beginning, end and size."""

import json
import re

import pytest

from tests.support.mcp import mcp_tools

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("bash_without_rc")]

LINES = 300_000
# A shell's result has the beginning only if its reader has kept up: at most 1 MiB behind. So the
# output pauses after each 200 kB.
STEP = 15_000
FLOOD = (
    f"for ((n = 0; n < {LINES}; n += {STEP})); do"
    f" seq -f 'line %.0f' $((n + 1)) $((n + {STEP})); sleep 0.1; done"
)
TEXT_BYTES = sum(len(f"line {n}\n") for n in range(1, LINES + 1))
NOTE = re.compile(
    r"^… ([\d,]+) lines \(([\d.]+) MB\) left out, ([\d.]+) MB of it no longer retained: .* …$",
    re.MULTILINE,
)
CALLS = {
    "terminal_bash": ("session", {"command": FLOOD}),
    "terminal_bash in a shell": ("session", {"command": FLOOD, "session": "s"}),
    "terminal_start": ("session", {"command": f"{FLOOD}; cat"}),
    "Bash": ("claude", {"command": FLOOD}),
    "exec_command": ("codex", {"cmd": FLOOD, "yield_time_ms": 30_000}),
}


@pytest.mark.parametrize("call", CALLS)
async def test_result_has_beginning_and_end_and_says_how_much_is_between(tmp_path, call):
    tool_set, arguments = CALLS[call]
    async with mcp_tools(tmp_path, tool_set) as tools:
        result = await tools.call(call.partition(" ")[0], **arguments)
    output = result.data["output"]
    note = NOTE.search(output)
    assert note, f"{result.state} {output[:300]!r} … {output[-300:]!r}"
    head, tail = output[: note.start()].splitlines(), output[note.end() + 1 :].splitlines()
    assert head == [f"line {n}" for n in range(1, len(head) + 1)]
    assert tail[-1] == f"line {LINES}"
    assert int(note[1].replace(",", "")) == LINES - len(head) - len(tail)
    assert float(note[2]) == pytest.approx((TEXT_BYTES - len(output)) / 1e6, abs=0.06)
    assert float(note[3]) == pytest.approx((TEXT_BYTES - 2**20) / 1e6, abs=0.2)
    assert len(output) <= 40_200


async def test_new_output_says_how_much_was_lost_before_it(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command=f"echo begin; read x; {FLOOD}; cat")
        result = await tools.call("terminal_continue", sessionId="term-1", stdin="\n")
    assert re.match(r"… [\d.]+ MB left out, [\d.]+ MB of it no longer", result.data["output"])
    assert result.data["output"].endswith(f"line {LINES}\n")
    assert result.data["truncated"]


async def test_each_page_of_a_line_of_3_mb_is_bounded(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash", command="head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"
        )
        pages = []
        while hint := re.search(r"terminal_output (\{.*?\})", f"{result.state} {result.text}"):
            result = await tools.call("terminal_output", **json.loads(hint[1]))
            pages.append(result.data["output"])
    assert max(map(len, pages)) <= 30_000
    assert "".join(pages).strip("x") == "\nend\n"
    assert len("".join(pages)) >= 2**20 - 100
