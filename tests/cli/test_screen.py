"""`acpterm screen`: the current screen as text, in colours, as JSON and as a picture."""

import json
import shutil
import subprocess
from xml.etree import ElementTree as ET

import pytest

from acpterm.commands.export import picture
from tests.support.cases import each_case
from tests.support.commands import command_environment, run
from tests.support.starting import ACPTERM
from tests.support.user import user_terminals_at

PRINT_LINES = r"printf 'one\n\033[31mred\033[m 漢|\n\033]2;a title\007\033[3;5Hthere'; read x"


async def test_screen_prints_text_without_a_window(agent, path):
    terminal = await agent.create_until("there", PRINT_LINES)
    assert await run(path, "screen", terminal) == (0, "one\nred 漢|\n    there\n", "")
    done = await run(path, "screen", terminal, "--json")
    found = json.loads(done.out)
    assert found["text"][:4] == ["one", "red 漢|", "    there", ""]
    assert found["rows"][1] == "\x1b[0;31mred\x1b[m 漢|"
    assert (found["cols"], found["lines"], found["cursor"]) == (200, 40, [9, 2])
    assert found["title"] == "a title"


async def test_screen_prints_the_rows_above_it(agent, path):
    line = r"for i in {1..300}; do printf '\e[3%dm%d\e[m\n' $((i % 8)) $i; done; echo end; read x"
    terminal = await agent.create_until("end", line)
    numbers = "".join(f"{number}\n" for number in range(1, 301)) + "end\n"
    assert await run(path, "screen", terminal, "-S", "-") == (0, numbers, "")
    few = await run(path, "screen", terminal, "-S", "5")
    # 38 numbers, `end` and the cursor's row are on the screen.
    assert few.out == "".join(f"{number}\n" for number in range(258, 301)) + "end\n"
    found = json.loads((await run(path, "screen", terminal, "-S", "5", "--json")).out)
    assert found["history"][0] == "\x1b[0;32m258\x1b[m"
    assert found["rows"][0] == "\x1b[0;37m263\x1b[m"
    wrong = await run(path, "screen", terminal, "-S", "x")
    assert wrong.status == 2
    assert "'x' is not a number of rows: say one, or - for all" in wrong.err


async def test_rows_above_the_screen_are_whole_after_clear_and_margins(agent, path):
    begin = r"seq 100; printf '\e[H\e[2J\e[3J'; seq 101 110; printf '\e[2;39r\e[39H'"
    line = f"{begin}; seq 111 200; read x"
    terminal = await agent.create_until("200", line)
    rows = (await run(path, "screen", terminal, "-S", "-")).out.split()
    # What `clear` has erased are the rows of the screen; the first row is above the margins.
    expected = [*range(1, 62), 101, *range(164, 201)]
    assert rows == [str(number) for number in expected]


async def test_rows_above_the_screen_are_not_those_of_a_full_screen_program(agent, path):
    line = r"seq 100; printf '\e[?1049h'; seq 500 600; printf '\e[?1049l'; seq 101 200; read x"
    terminal = await agent.create_until("200", line)
    numbers = "".join(f"{number}\n" for number in range(1, 201))
    assert (await run(path, "screen", terminal, "--history", "-")).out == numbers


async def test_screen_json_escapes_invisible_characters(agent, path):
    terminal = await agent.create_until("hi", r"printf '\033]2;a\343\205\244b\007hi'; read x")
    out = (await run(path, "screen", terminal, "--json")).out
    assert json.loads(out)["title"] == "a\u3164b"
    assert "\u3164" not in out


@pytest.mark.parametrize(("no_color", "expected"), [("", "\x1b[0;31mred\x1b[m"), ("1", "red 漢|")])
@pytest.mark.long
async def test_screen_has_colours_in_a_window_unless_no_color_is_set(
    agent, path, no_color, expected
):
    async with user_terminals_at(path) as window:
        terminal = await agent.create_until("there", PRINT_LINES)
        env = {**command_environment(path), "NO_COLOR": no_color}
        recorded = await window.create(
            ACPTERM[0],
            args=[*ACPTERM[1:], "screen", terminal],
            env=[{"name": name, "value": value} for name, value in env.items()],
            own={"format": "raw"},
        )
        await window.wait(recorded)
        output = (await window.output(recorded))["output"]
        assert expected in output
        assert ("\x1b" in output) == (not no_color)
        await window.release(recorded)


@pytest.mark.long
async def test_screen_writes_a_picture_to_a_file(agent, path, tmp_path):
    terminal = await agent.create_until("there", PRINT_LINES)
    file = tmp_path / "a.svg"
    assert await run(path, "screen", terminal, "--svg", str(file)) == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert (await run(path, "screen", terminal, "--svg", "-")).out == file.read_text()
    root = ET.parse(file).getroot()
    assert root[0].text == "a title"
    done = await run(path, "screen", terminal, "--svg", str(tmp_path / "none" / "a.svg"))
    assert (done.status, done.out) == (1, "")
    assert "No such file or directory" in done.err
    done = await run(path, "screen", terminal, "--svg", "-", "--json")
    assert done.status == 2


# The picture


def texts(row: str) -> list[tuple[float, str]]:
    """Draw a row; return its text elements with the columns at which they begin."""
    root = ET.fromstring(picture.svg([row], 40, "t"))
    group = next(element for element in root if element.tag.endswith("}g"))
    return [
        (
            round(float(one.attrib["x"]) / picture.WIDTH, 3) - ("text-anchor" in one.attrib),
            one.text or "",
        )
        for one in group
        if one.tag.endswith("}text")
    ]


@pytest.mark.parametrize(
    ("row", "pieces"),
    [
        ("plain   text", [(0, "plain"), (8, "text")]),
        ("\x1b[0;4ma  b\x1b[m", [(0, "a  b")]),
        ("<a&b> \"'", [(0, "<a&b>"), (6, "\"'")]),
        ("漢字x", [(0, "漢"), (2, "字"), (4, "x")]),
        ("🎉 é e\u0301|", [(0, "🎉"), (3, "é"), (5, "e\u0301"), (6, "|")]),
        ("a\x1b[0;31mb\x1b[mc", [(0, "a"), (1, "b"), (2, "c")]),
    ],
)
def test_svg_places_every_character_in_its_cell(row, pieces):
    assert texts(row) == pieces


@each_case(
    ("sgr", "expected"),
    [
        ("0;31", 'fill="#cc3b3b"'),
        ("0;38;5;196", 'fill="#ff0000"'),
        ("0;38;5;244", 'fill="#808080"'),
        ("0;38;2;1;2;3", 'fill="#010203"'),
        ("0;48;2;1;2;3", '<rect x="0" y="0" width="8.7" height="16.3" fill="#010203"'),
        ("0;7", 'fill="#1c1c1c"'),
        ("0;1", 'font-weight="bold"'),
        ("0;3", 'font-style="italic"'),
        ("0;2", 'opacity="0.6"'),
        ("0;4;9", 'text-decoration="underline line-through"'),
        ("0;4:3;58:2::1:2:3", 'text-decoration="underline"'),
    ],
)
def test_svg_draws_the_attributes_of_sgr(sgr, expected):
    assert expected in picture.svg([f"\x1b[{sgr}mx\x1b[m"], 10, "t")


@pytest.mark.parametrize("as_page", [False, True])
def test_picture_replaces_characters_that_xml_forbids(as_page):
    rows, title = ["a\ufffeb\uffff漢\x1b[0;31m\ufffe\x1b[m"], "echo \ufffe\uffff"
    drawn = "".join(picture.page(rows, title)) if as_page else picture.svg(rows, 20, title)
    assert not {"\ufffe", "\uffff"} & set(drawn)
    assert "<title>echo \ufffd\ufffd</title>" in drawn
    if as_page:
        assert "a\ufffdb\ufffd<i>漢</i>" in drawn
    else:
        group = ET.fromstring(drawn)[-1]
        assert "".join(group.itertext()).replace("\n", "") == "a\ufffdb\ufffd漢\ufffd"


def test_page_refers_to_no_other_resource():
    page = "".join(picture.page(["\x1b[0;31m<b>\x1b[m", "漢"], "a <title>"))
    assert '<span style="color:#cc3b3b">&lt;b&gt;</span>\n<i>漢</i>\n' in page
    assert "<title>a &lt;title&gt;</title>" in page
    assert "http" not in page


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_rsvg_convert_draws_the_svg():
    drawn = picture.svg(["\x1b[0;7mone\x1b[m 漢 🎉"] * 3, 20, "a title")
    done = subprocess.run(["rsvg-convert"], input=drawn.encode(), capture_output=True, check=True)
    assert done.stdout.startswith(b"\x89PNG")
