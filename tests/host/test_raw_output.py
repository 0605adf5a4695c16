"""`terminal/output` of a terminal that was created with the format raw."""

import pytest

RAW = {"format": "raw"}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, ""), (1, ""), (2, ""), (3, "€"), (4, "b€"), (5, "b€"), (7, "€b€"), (8, "a€b€")],
)
async def test_raw_limit_counts_bytes_and_cuts_at_a_character(agent, limit, expected):
    terminal = await agent.create("printf 'a€b€'", own=RAW, outputByteLimit=limit)
    await agent.wait(terminal)
    output = await agent.output(terminal)
    assert output["output"] == expected
    assert output["truncated"] is (limit < 8)


async def test_replaced_bytes_fit_the_raw_limit(agent):
    terminal = await agent.create(r"printf '\377\377\377x'", own=RAW, outputByteLimit=5)
    await agent.wait(terminal)
    output = await agent.output(terminal)
    assert (output["output"], output["truncated"]) == ("\ufffdx", True)


async def test_incomplete_character_waits_for_its_rest(agent):
    command = r"stty -echo; printf 'a\342\202'; read x; printf '\254'"
    terminal = await agent.create(command, own=RAW)
    assert await agent.until_output(terminal, "a") == "a"
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "a€"


async def test_escape_sequences_and_carriage_returns_are_kept(agent):
    output, _ = await agent.run(r"printf '\033[1mx\ry\n'", own=RAW)
    assert output == "\x1b[1mx\ry\r\n"
