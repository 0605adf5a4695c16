"""Reading and playing asciicasts: lenient parsing, timing, and control keys."""

import io
import json
import math

import pytest
import trio
import trio.testing

from acpterm.commands.export.player import Playback, PlayerKey, keys_in
from acpterm.recording import asciicast
from acpterm.recording.asciicast import CastError, Event, read, read_lines
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.paint import LEAVE
from tests.support.cases import each_case

HEADER = b'{"version": 2, "width": 80, "height": 24, "title": "make", "timestamp": 12.5}\n'


def cast(*events, header=HEADER):
    return read([header, *(json.dumps(event).encode() + b"\n" for event in events)])


async def play(recording, write, **how):
    await Playback(recording, write, **how).run()


class Screen:
    """Records what was written, and when."""

    def __init__(self):
        self.start = trio.current_time()
        self.seen = []

    async def write(self, data):
        self.seen.append((round(trio.current_time() - self.start, 3), data))


SAMPLE = [
    [0.5, "o", "one "],
    [1.0, "i", "x"],
    [1.5, "r", "100x30"],
    [2.0, "o", "two €"],
    [100.0, "o", "three"],
]


def test_header_and_events_are_read():
    recording = cast(*SAMPLE)
    assert recording[:4] == (80, 24, "make", 12.5)
    assert list(recording.events) == [Event(*event) for event in SAMPLE]


@each_case(
    ("header", "what"),
    [
        (b"", "the recording is empty"),
        (b"\n", "the first line is no JSON"),
        (b"\x00\xff\n", "the first line is no JSON"),
        (b"[" * 100_000, "the first line is no JSON"),
        (b"[1]", "it has no version"),
        (b'{"width": 80}', "it has no version"),
        (b'{"version": 1, "stdout": []}', "version is 1: only 2 and 3"),
        (b'{"version": [2]}', r"version is \[2\]: only 2 and 3"),
        (b'{"version": 2, "width": 80}', "height is None: it should be 1 or more"),
        (b'{"version": 2, "width": "x", "height": 24}', "width is 'x'"),
        (b'{"version": 2, "width": 0, "height": 24}', "width is 0"),
        (b'{"version": 3, "width": 80, "height": 24}', "cols is None"),
        (b'{"version": 3, "term": 5}', "term is 5: it should be an object"),
    ],
)
def test_bad_header_is_an_error_that_says_why(header, what):
    with pytest.raises(CastError, match=what):
        read([header] if header else [])


def test_bad_lines_are_skipped():
    lines = [
        HEADER,
        b'[1, "o", "a"]\n',
        b"\n",
        b"{broken\n",
        b"\xff\n",
        b"[1]\n",
        b'["1", "o", "x"]\n',
        b'[NaN, "o", "x"]\n',
        b'[1e300, "o", "x"]\n',
        b"[1" + b"0" * 500 + b', "o", "x"]\n',
        b'[true, "o", "x"]\n',
        b'[2, 3, "x"]\n',
        b'[2, "o", null]\n',
        b'{"a": 1}\n',
        b"[" * 100_000 + b"\n",
        b'[3, "o", "b", "more"]\n',
        b'[2, "o", "c"]\n',
        b'[4, "o", "cut',
    ]
    recording = read(lines)
    # Times never decrease.
    assert list(recording.events) == [Event(1, "o", "a"), Event(3, "o", "b"), Event(3, "o", "c")]
    # Blank lines are not counted.
    assert (recording.report.events, recording.report.unread) == (3, 13)
    summary = recording.report.summary("left out")
    assert summary.startswith("13 lines left out: the first is line 4, which is no JSON: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'[4, "o", "cut', "is no JSON: Input data was truncated"),
        (b'{"a": 1}\n', "is no array of a time, a code and data"),
        (b"[1]\n", "is no array of a time, a code and data"),
        (b'["1", "o", "x"]\n', "does not begin with a time in seconds"),
        (b'[2, "o", null]\n', "has a code or data that is no string"),
        (b"", "has 16777216 bytes or more"),
        (b"# a comment\n", "is no JSON: JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_report_says_what_is_wrong_with_the_first_skipped_line(line, why):
    recording = read([HEADER, b'[0, "o", "a"]\n', line])
    assert len(list(recording.events)) == 1
    assert recording.report.summary("left out") == f"1 line left out: it is line 3, which {why}"


def test_times_are_relative_in_version_3():
    header = b'{"version": 3, "term": {"cols": 90, "rows": 30}, "timestamp": 1}\n'
    recording = read(
        [header, b"# a comment\n", b'[1.5, "o", "a"]', b'[0.5, "x", "0"]', b'[-1,"o","b"]']
    )
    assert (recording.cols, recording.rows) == (90, 30)
    assert list(recording.events) == [Event(1.5, "o", "a"), Event(2, "x", "0"), Event(2, "o", "b")]
    assert recording.report.unread == 0


def test_lines_that_are_too_long_are_read_as_empty():
    limit = asciicast._LINE_BYTES_MAX
    lines = [HEADER, b"y" * 2 * limit + b"\n", b"x" * (limit - 1) + b"\n", b"z" * limit + b"\n"]
    found = list(read_lines(io.BytesIO(b"".join([*lines, b"[]\n", b"end"]))))
    # Lengths, since pytest would print the lines.
    assert [len(line) for line in found] == [len(HEADER), 0, limit, 0, 3, 3]
    assert [found[0], *found[4:]] == [HEADER, b"[]\n", b"end"]


async def test_output_is_played_at_its_recorded_times(autojump_clock):
    screen = Screen()
    await play(cast(*SAMPLE), screen.write)
    assert screen.seen == [(0.5, b"one "), (2.0, "two €".encode()), (100.0, b"three")]


async def test_queries_of_the_recorded_program_are_not_played(autojump_clock):
    screen = Screen()
    events = ([1, "o", "a\x1b[6"], [2, "o", "nb\x1b]52;c;QQ==\x07"], [3, "o", "\x1b[c"])
    await play(cast(*events), screen.write)
    assert screen.seen == [(1, b"a"), (2, b"b")]


async def test_speed_and_idle_limit_shorten_the_playback(autojump_clock):
    screen = Screen()
    await play(cast(*SAMPLE), screen.write, speed=2.0, idle_limit=3.0)
    assert screen.seen == [(0.25, b"one "), (1.0, "two €".encode()), (2.5, b"three")]


async def test_infinite_speed_plays_at_once(autojump_clock):
    screen = Screen()
    await play(cast(*SAMPLE), screen.write, speed=math.inf)
    assert [when for when, _ in screen.seen] == [0, 0, 0]


async def test_playback_catches_up_after_a_slow_write(autojump_clock):
    screen = Screen()

    async def write(data):
        await screen.write(data)
        await trio.sleep(2 if data == b"one " else 0)

    await play(cast(*SAMPLE), write)
    assert [when for when, _ in screen.seen] == [0.5, 2.5, 100.0]


async def test_playback_can_be_cancelled_in_a_pause(autojump_clock):
    screen = Screen()
    with trio.move_on_after(50) as scope:
        await play(cast(*SAMPLE), screen.write)
    assert scope.cancelled_caught
    assert len(screen.seen) == 2


async def test_playback_without_pauses_can_be_cancelled():
    async def write(data):
        pass

    def endless():
        yield HEADER
        while True:
            yield b'[0, "o", "x"]\n'

    with trio.move_on_after(0.05) as scope:
        await play(read(endless()), write)
    assert scope.cancelled_caught


@pytest.mark.parametrize("bad", [0, -1, math.nan])
@pytest.mark.parametrize("name", ["speed", "idle_limit"])
async def test_invalid_speed_is_refused(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be above 0, not"):
        await play(cast(), Screen().write, **{name: bad})


def test_leave_sequence_leaves_the_alternate_screen():
    assert b"\x1b[?1049l" in LEAVE


# Keys

SECONDS = [[n, "o", f"{n}\r\n"] for n in range(10)] + [[100, "o", "end"]]


async def play_with(screen, *presses, **how):
    """Play the recording `SECONDS` on `screen`, and press keys; return the `Playback`.

    `presses` are pairs of a time, in seconds after the start, and a key.
    """
    playback = Playback(
        cast(*SECONDS), screen.write, reopen=lambda: cast(*SECONDS), idle_limit=1.0, **how
    )
    send, receive = trio.open_memory_channel(9)
    async with trio.open_nursery() as nursery:

        async def press():
            for when, key in presses:
                await trio.sleep_until(screen.start + when)
                await send.send(key)

        nursery.start_soon(press)
        await playback.run(receive)
        nursery.cancel_scope.cancel()
    return playback


async def test_space_pauses_and_resumes(autojump_clock):
    screen = Screen()
    await play_with(screen, (2.5, PlayerKey.PAUSE), (50, PlayerKey.PAUSE))
    assert screen.seen[:4] == [(0, b"0\r\n"), (1, b"1\r\n"), (2, b"2\r\n"), (50.5, b"3\r\n")]
    assert screen.seen[-1] == (57.5, b"end")


async def test_step_plays_the_next_output_and_pauses(autojump_clock):
    screen = Screen()
    await play_with(screen, (0.5, PlayerKey.STEP), (7, PlayerKey.STEP), (20, PlayerKey.PAUSE))
    assert screen.seen[:4] == [(0, b"0\r\n"), (0.5, b"1\r\n"), (7, b"2\r\n"), (21, b"3\r\n")]


async def test_speed_change_keeps_the_position(autojump_clock):
    screen = Screen()
    playback = await play_with(
        screen,
        (0.5, PlayerKey.FASTER),
        (1.5, PlayerKey.SLOWER),
        (1.5, PlayerKey.SLOWER),
        (3, PlayerKey.QUIT),
    )
    assert screen.seen == [(0, b"0\r\n"), (0.75, b"1\r\n"), (1.25, b"2\r\n"), (2.5, b"3\r\n")]
    assert playback.speed == 0.5


async def test_forward_plays_skipped_output_at_once(autojump_clock):
    screen = Screen()
    await play_with(screen, (0.5, PlayerKey.FORWARD))
    assert [when for when, _ in screen.seen] == [0, *[0.5] * 5, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("paused", [False, True])
async def test_back_paints_the_screen_of_that_time(autojump_clock, paused):
    screen = Screen()
    presses = [(7.5, PlayerKey.BACK), (60, PlayerKey.QUIT)]
    playback = await play_with(screen, *([(7.5, PlayerKey.PAUSE)] if paused else []), *presses)
    window = Emulator(80, 24)
    for _, data in screen.seen[:9]:
        window.feed(data)
    assert screen.seen[8][0] == 7.5
    assert window.screen().text() == "0\n1\n2"
    if paused:
        assert (playback.time, len(screen.seen)) == (2.5, 9)
    else:
        assert screen.seen[9] == (8, b"3\r\n")


async def test_back_rings_the_bell_when_the_cast_cannot_be_reopened(autojump_clock):
    screen = Screen()
    playback = Playback(cast(*SECONDS), screen.write)
    send, receive = trio.open_memory_channel(2)
    send.send_nowait(PlayerKey.BACK)
    send.send_nowait(PlayerKey.QUIT)
    await playback.run(receive)
    assert screen.seen == [(0, b"\a")]


async def test_playback_continues_when_the_keyboard_is_gone(autojump_clock):
    screen = Screen()
    send, receive = trio.open_memory_channel(2)
    send.send_nowait(PlayerKey.PAUSE)
    send.close()
    await Playback(cast(*SAMPLE), screen.write).run(receive)
    assert len(screen.seen) == 3


@pytest.mark.parametrize("paused", [False, True])
async def test_output_stays_on_time_when_the_keyboard_goes_away(autojump_clock, paused):
    screen = Screen()
    send, receive = trio.open_memory_channel(2)
    if paused:
        send.send_nowait(PlayerKey.PAUSE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Playback(cast(*SAMPLE), screen.write).run, receive)
        await trio.sleep(0.2)
        send.close()
    # At the end of the pause, no playback time has passed.
    assert screen.seen[0] == (0.7 if paused else 0.5, b"one ")


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b" .qQ", [PlayerKey.PAUSE, PlayerKey.STEP, PlayerKey.QUIT, PlayerKey.QUIT]),
        (
            b"\x1b[A\x1bOB\x1b[1;5C\x1b[D",
            [PlayerKey.FASTER, PlayerKey.SLOWER, PlayerKey.FORWARD, PlayerKey.BACK],
        ),
        (b"\x1b[32u\x1b[113;1:1u", [PlayerKey.PAUSE, PlayerKey.QUIT]),
        (b"x\x1b[3~\x1b[5;5Rq", [PlayerKey.QUIT]),
        (b"\x1b", []),
    ],
)
def test_control_keys_are_found_in_input(typed, keys):
    assert list(keys_in(typed)) == keys


def test_key_beyond_ascii_is_no_control_key_although_its_code_ends_with_the_bits_of_one():
    assert [chr(ord(character) & 127) for character in "ñ\xa0®"] == ["q", " ", "."]
    assert list(keys_in(b"\x1b[241u\x1b[160u\x1b[174;1u")) == []
