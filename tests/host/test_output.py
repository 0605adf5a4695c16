"""Output of terminals as agents read it: limits, characters, the three formats."""

import base64
import re

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_at
from tests.support.cases import each_case
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here

MIB = 1024 * 1024


async def read(agent, command, **more):
    """Run a command to its end; return its output, and whether it is truncated."""
    terminal = await agent.create(command, **more)
    await agent.wait(terminal)
    output = await agent.output(terminal)
    await agent.release(terminal)
    return output["output"], output["truncated"]


def last(text, limit):
    """Return the longest suffix of `text` that fits into `limit` bytes."""
    while len(text.encode()) > limit:
        text = text[1:]
    return text


# Limits.

TEXT = "aé→🙂bc"


@each_case("limit", range(len(TEXT.encode()) + 3))
async def test_output_limit_cuts_at_a_character(agent, limit):
    size = len(TEXT.encode())
    output, truncated = await read(agent, f"printf '{TEXT}'", outputByteLimit=limit)
    assert output == last(TEXT, limit)
    # Output of exactly the limit is not truncated.
    assert truncated is (size > limit)


async def test_output_limit_holds_for_raw_output(agent):
    for limit in range(len(TEXT.encode()) + 2):
        own = {"format": "raw"}
        output, truncated = await read(agent, f"printf '{TEXT}'", outputByteLimit=limit, own=own)
        assert output == last(TEXT, limit)
        assert truncated is (limit < len(TEXT.encode()))


async def test_output_limit_never_cuts_inside_a_sequence(agent):
    command = "printf 'ab\\033[31mcd\\033]0;title\\007ef\\r\\ngh'"
    text = "abcdef\ngh"
    for limit in range(len(text) + 2):
        output, truncated = await read(agent, command, outputByteLimit=limit)
        assert (output, truncated) == (text[max(0, len(text) - limit) :], limit < len(text))


async def test_output_limit_of_zero_retains_nothing_and_is_truncated(agent):
    assert await read(agent, "echo x", outputByteLimit=0) == ("", True)
    assert await read(agent, "true", outputByteLimit=0) == ("", False)


async def test_truncated_output_has_the_number_of_lines_and_its_beginning_on_request(agent):
    terminal = await agent.create("seq 1000", outputByteLimit=1000)
    await agent.wait(terminal)
    asks = agent.of(terminal) | {"_meta": {"acpterm": {"beginning": True}}}
    for _ in range(2):
        assert (await agent.output(terminal))["_meta"]["acpterm"] == {"totalLines": 1000}
        own = (await agent.request("terminal/output", asks))["_meta"]["acpterm"]
        assert own["beginning"].startswith("1\n2\n")


async def test_truncated_stays_set(agent):
    line = "printf 0123456789; read x; printf '\\r\\033[K'; read x; printf 'a\\n'"
    terminal = await agent.create(f"stty -echo; {line}", outputByteLimit=8)
    with trio.fail_after(DEADLINE_S):
        while not (await agent.output(terminal))["truncated"]:
            pass
    await agent.type(terminal, "\n\n")
    await agent.wait(terminal)
    assert (await agent.output(terminal))["truncated"] is True


@pytest.mark.long
async def test_output_limit_defaults_to_a_mebibyte(agent):
    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert len(whole) > MIB
    output, truncated = await read(agent, "seq 200000")
    assert truncated is True
    assert output == whole[-MIB:]
    assert await read(agent, "seq 1000") == (
        "".join(f"{number}\n" for number in range(1, 1001)),
        False,
    )


@each_case("limit", [None, 2**63, 2**64 - 1])
async def test_output_limit_may_be_null_or_any_number_of_64_bits(agent, limit):
    assert await read(agent, "echo x", outputByteLimit=limit) == ("x\n", False)


async def test_output_bytes_setting_is_the_default_limit():
    async with agent_here(output_bytes=5) as agent:
        assert await read(agent, "printf 0123456789") == ("56789", True)
        assert await read(agent, "printf 0123456789", outputByteLimit=8) == ("23456789", True)


async def test_max_output_bytes_setting_caps_the_limit():
    async with agent_here(max_output_bytes=5) as agent:
        assert await read(agent, "printf 0123456789", outputByteLimit=10**12) == ("56789", True)
        assert await read(agent, "printf 0123456789") == ("56789", True)
        assert await read(agent, "printf 0123456789", outputByteLimit=3) == ("789", True)


@pytest.mark.long
async def test_output_limit_may_exceed_the_default(agent):
    whole = "".join(f"{number}\n" for number in range(1, 300_001))
    assert await read(agent, "seq 300000", outputByteLimit=4 * MIB) == (whole, False)


# Characters.


async def test_incomplete_character_is_never_returned_while_running(agent):
    bytes_ = " ".join(f"{byte:o}" for byte in "🙂".encode())
    line = (
        f"stty -echo; printf '<\\n'; for b in {bytes_}; do read x; printf \"\\\\$b\"; done; read x"
    )
    terminal = await agent.create(line)
    await agent.until_output(terminal, "<\n")
    position = (await agent.read_from(terminal, format="raw"))["position"]
    for count in range(1, 5):
        await agent.type(terminal, "\n")
        with trio.fail_after(DEADLINE_S):
            raw = await agent.read_from(terminal, since=position, format="raw", waitMs=60_000)
        assert raw["position"] == position + 1
        position += 1
        for _ in range(3):
            expected = "<\n🙂" if count == 4 else "<\n"
            assert (await agent.output(terminal))["output"] == expected
    await agent.type(terminal, "\n")
    assert (await agent.wait(terminal))["exitCode"] == 0


async def test_incomplete_character_is_replaced_after_the_exit(agent):
    terminal = await agent.create("printf 'a\\360\\237\\231'")
    await agent.wait(terminal)
    # It is replaced once no process has the terminal open, which may be a moment after the exit.
    assert await agent.until_output(terminal, "\ufffd") == "a\ufffd"


@each_case("limit", range(8, 11))
async def test_invalid_bytes_count_as_their_replacement(agent, limit):
    # Three invalid bytes become three characters of three bytes each.
    output, truncated = await read(agent, "printf '\\377\\377\\377'", outputByteLimit=limit)
    assert output == "\ufffd" * (limit // 3)
    assert truncated is (limit < 9)
    assert len(output.encode()) <= limit


@each_case(
    ("command", "expected"),
    [
        pytest.param("printf '\\200\\201\\202'", "\ufffd\ufffd\ufffd", id="continuation bytes"),
        pytest.param("printf 'a\\377b'", "a\ufffdb", id="a lone 0xff"),
        pytest.param("printf 'a\\000b'", "ab", id="NUL"),
        pytest.param("printf 'a\\r\\nb\\n'", "a\nb\n", id="CRLF"),
        pytest.param("printf '\\033[31mred\\033[0m\\n'", "red\n", id="colours"),
        pytest.param("printf '\\033]0;title\\007x\\n'", "x\n", id="title"),
        pytest.param("printf 'abc\\b\\bX\\n'", "aXc\n", id="backspace"),
        pytest.param("printf '10%%\\r20%%\\r100%%\\n'", "100%\n", id="progress"),
        pytest.param(
            "echo top; echo a 1; echo b 1; printf '\\033[2Aa 2\\nb 2\\n'; echo end",
            "top\na 2\nb 2\nend\n",
            id="progress of two lines",
        ),
    ],
)
async def test_text_format_is_what_a_reader_sees(agent, command, expected):
    assert await read(agent, command) == (expected, False)


@pytest.mark.long
async def test_mebibyte_of_four_byte_characters_is_complete(agent):
    line = "🙂" * 63
    command = f"yes '{line}' | head -n 4200"
    output, truncated = await read(agent, command, outputByteLimit=2 * MIB)
    assert output == f"{line}\n" * 4200
    assert truncated is False
    output, truncated = await read(agent, command, outputByteLimit=MIB + 1)
    assert output == last((f"{line}\n" * 4200)[-(MIB // 4 + 5000) :], MIB + 1)
    assert truncated is True


@pytest.mark.long
async def test_progress_bar_does_not_push_out_other_lines(agent):
    line = "echo first; yes \"$(printf 'progress %060d\\r' 7)\" | tr -d '\\n' | head -c 20000000"
    command = f"{line}; printf '\\nlast\\n'"
    with trio.fail_after(30):
        output, truncated = await read(agent, command, outputByteLimit=1000)
    first, *_, end = output.splitlines()
    assert (first, end) == ("first", "last")
    assert truncated is False


@pytest.mark.long
async def test_memory_stays_flat_while_a_program_floods_and_the_agent_polls(tmp_path):
    def resident(pid):
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024

    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        await agent.run("seq 100000")
        terminal = await agent.create("yes")
        before = resident(process.pid)
        end = trio.current_time() + 1
        most = before
        while trio.current_time() < end:
            await agent.output(terminal)
            most = max(most, resident(process.pid))
        await agent.release(terminal)
    # A mebibyte of raw output, one of text, and some pending responses.
    assert most - before < 32 * MIB


# Formats.


async def test_raw_format_has_escape_sequences_and_carriage_returns(agent):
    output, _ = await read(agent, "printf '\\033[1mx\\033[m\\n'", own={"format": "raw"})
    assert output == "\x1b[1mx\x1b[m\r\n"


async def test_screen_format_shows_what_a_window_shows(agent):
    line = "printf 'one\\ntwo\\033[1;1HO\\033[5;3Hx'"
    output, truncated = await read(agent, line, own={"format": "screen"})
    assert output == "One\ntwo\n\n\n  x"
    assert truncated is False
    own = {"format": "screen", "cols": 10, "rows": 3}
    output, _ = await read(agent, "seq 100; printf 0123456789ab", own=own)
    assert output == "100\n0123456789\nab"


async def test_screen_format_follows_a_running_program(agent):
    terminal = await agent.create(
        "stty -echo; printf 'a\\n'; read x; printf '\\033[2J\\033[Hb\\n'; read x",
        own={"format": "screen"},
    )
    await agent.until_output(terminal, "a")
    await agent.type(terminal, "\n")
    assert await agent.until_output(terminal, "b") == "b"
    assert "exitStatus" not in await agent.output(terminal)
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    assert (await agent.output(terminal))["exitStatus"]["exitCode"] == 0


async def test_format_defaults_to_text(agent):
    assert await read(agent, "printf '\\033[1mx'", own={"format": "text"}) == ("x", False)
    assert await read(agent, "printf '\\033[1mx'", own={}) == ("x", False)


async def test_unknown_format_is_refused_with_its_name(agent):
    with pytest.raises(RpcError, match="html"):
        await agent.create("true", own={"format": "html"})


# Encodings.

GREETING = "错误: 找不到文件或目录、请检查路径是否正确"


async def test_output_and_input_in_another_encoding(agent, tmp_path):
    typed = tmp_path / "typed"
    command = f"stty -echo; echo ready; head -n 1 | tee {typed}; exec od -An -tx1 {typed}"
    terminal = await agent.create(command, own={"encoding": "gb18030"})
    await agent.until_output(terminal, "ready")
    await agent.type(terminal, "目录\n")
    await agent.wait(terminal)
    output = (await agent.output(terminal))["output"]
    assert output.splitlines()[:2] == ["ready", "目录"]
    assert output.split()[2:] == [f"{byte:02x}" for byte in "目录\n".encode("gb18030")]


@pytest.mark.parametrize("encoding", ["gb18030", "auto"])
async def test_text_and_screen_agree_in_another_encoding(agent, tmp_path, encoding):
    file = tmp_path / "file"
    file.write_bytes(f"{GREETING}\n".encode("gb18030"))
    terminal = await agent.create(f"cat {file}; exec sleep 60", own={"encoding": encoding})
    await agent.until_output(terminal, GREETING)
    screen = await agent.request("_acpterm/terminal/screen", agent.of(terminal))
    assert GREETING in str(screen)
    part = await agent.read_from(terminal)
    assert part["data"] == f"{GREETING}\n"
    # Positions count what readers get.
    assert part["position"] == len(f"{GREETING}\r\n".encode())
    await agent.release(terminal)


async def test_raw_output_is_not_decoded(agent, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(GREETING.encode("gb18030"))
    terminal = await agent.create(f"cat {file}", own={"encoding": "gb18030", "format": "raw"})
    await agent.wait(terminal)
    read = await agent.read_from(terminal, format="raw")
    assert base64.b64decode(read["data"]) == GREETING.encode("gb18030")


@pytest.mark.long
async def test_much_output_in_another_encoding_is_complete(agent, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(f"{GREETING}\n".encode("gb18030") * 80_000)
    output, _ = await read(
        agent, f"cat {file}", own={"encoding": "gb18030"}, outputByteLimit=8 * MIB
    )
    assert output == f"{GREETING}\n" * 80_000
