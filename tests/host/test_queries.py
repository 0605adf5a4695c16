"""The host replies to the programs' queries, with and without attached windows."""

import pytest
import trio

from tests.support.depth import DEADLINE_S


async def test_program_gets_replies_while_no_window_is_attached(agent):
    terminal = await agent.create(
        "stty raw -echo; printf 'ab\\033[6n\\033[c\\033[?u\\033[>q'; head -c 40 | cat -v"
    )
    text = await agent.until_output(terminal, "acpterm(")
    assert text.startswith("ab^[[1;3R^[[?62;22c^[[?0u^[P>|acpterm(")


async def test_queries_are_not_text_and_replies_are_not_output(agent):
    terminal = await agent.create(
        "stty raw -echo; printf 'a\\033[6nb'; head -c 6 >/dev/null; echo c"
    )
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "abc\n"


@pytest.mark.long
async def test_program_that_reads_no_replies_ends_and_memory_stays_flat(host, agent):
    program = (
        "import os, tty; tty.setraw(0)\n"
        "for _ in range(200): os.write(1, b'\\x1b[6n' * 1000)\n"
        "os.write(1, b'done')\n"
    )
    terminal = await agent.create("python3", args=["-c", program])
    with trio.fail_after(DEADLINE_S):
        await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "done"
    keyboard = host.terminals.pool.terminals[terminal].keyboard
    assert len(keyboard._rest) <= 64 * 1024
    other = await agent.create("echo next")
    assert await agent.until_output(other, "next") == "next\n"


async def test_text_that_the_program_chose_does_not_come_back_as_input(agent):
    chosen = (
        "\\033]2;MARK\\007\\033[21t\\005\\033P$qMARK\\033\\\\\\033]52;c;?\\007"
        "\\033]5522;type=read:id=MARK;\\007\\033P+q4d41524b\\033\\\\\\033[5n"
    )
    terminal = await agent.create(f"stty raw -echo; printf '{chosen}'; head -c 4 | cat -v")
    text = await agent.until_output(terminal, "0n")
    assert text == "^[[0n"
