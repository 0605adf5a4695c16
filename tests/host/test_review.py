"""The user's methods that read the audit log and the recordings."""

import json
import os
from functools import partial

import pytest
import trio

from acpterm.config import Settings
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from acpterm.recording import library
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.user import user_of

NAME = "20260131T103000Z-term_00-agent.cast"
HEADER = {"version": 2, "width": 80, "height": 24, "title": "make", "timestamp": 1}


@pytest.fixture
def settings(tmp_path):
    return Settings(audit_dir=str(tmp_path / "audit"), record_dir=str(tmp_path / "casts"))


async def poll_until(ask):
    """Repeat an async function until it returns a true value; return that value."""
    with trio.fail_after(DEADLINE_S):
        while not (value := await ask()):
            await trio.sleep(0.005)
    return value


async def refused(user, method, params):
    with pytest.raises(RpcError) as raised:
        await user.request(method, params)
    return raised.value


def write_cast(tmp_path, name=NAME, *, header=HEADER, events=((0.5, "o", "hi"), (2.25, "m", "x"))):
    (tmp_path / "casts").mkdir(exist_ok=True)
    lines = [json.dumps(line, ensure_ascii=False) for line in (header, *events)]
    path = tmp_path / "casts" / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


async def test_audit_entries_are_those_of_the_file_and_can_be_paged_and_followed(settings):
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.initialize()
        await agent.wait(await agent.create("echo one"))
        async with user_of(host) as user:

            async def read(**params):
                return await user.request("audit/read", params)

            # Entries are written by a task, some time after they were made.
            await poll_until(lambda: _has(read, "exit"))
            everything = await read()
            assert (everything["next"], everything["enabled"]) == (None, True)
            events = [entry["event"] for entry in everything["entries"]]
            assert events == ["exit", "started", "create"]
            first = await read(limit=1)
            rest = await read(before=first["next"])
            assert first["entries"] + rest["entries"] == everything["entries"]
            assert (await read(agent="test", event="create"))["entries"][0]["command"] == "echo one"
            assert (await read(agent="x"))["entries"] == []
            assert (await read(after=everything["newest"]))["entries"] == []
            await agent.create("echo two")
            await poll_until(lambda: _has(read, "started", after=everything["newest"]))


async def _has(read, event, **params):
    found = await read(**params)
    return event in [entry["event"] for entry in found["entries"]]


async def test_audit_requests_are_checked(settings, tmp_path):
    async with open_host(settings, current()) as host, user_of(host) as user:
        for params in ({"before": "x"}, {"limit": 0}, {"limit": 501}, {"agent": ""}, {"since": -1}):
            assert (await refused(user, "audit/read", params)).code == INVALID_PARAMS
        (tmp_path / "audit").write_text("")
        error = await refused(user, "audit/read", {})
        assert error.code == INTERNAL_ERROR
        assert str(tmp_path / "audit") in error.message


async def test_recording_of_a_terminal_is_listed_and_read(tmp_path):
    settings = Settings(record=True, record_dir=str(tmp_path / "casts"), audit=False)
    async with open_host(settings, current()) as host, user_of(host) as user:
        line = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo hi"
        created = await user.request("terminal/create", {"command": line, "cols": 50})
        terminal = created["terminalId"]

        async def listed(is_written):
            found = (await user.request("recording/list"))["recordings"]
            return found if found and found[0]["recording"] is is_written else None

        await poll_until(partial(listed, True))
        (tmp_path / "go").touch()
        (info,) = await poll_until(partial(listed, False))
        assert (info["terminalId"], info["owner"], info["cols"]) == (terminal, "user", 50)
        assert info["command"] == line
        assert abs(info["startedAt"] - created["createdAt"]) <= 1000 * DEADLINE_S
        piece = await user.request("recording/read", {"name": info["name"]})
        header, *events = map(json.loads, piece["data"].splitlines())
        assert header["width"] == 50
        assert "".join(data for _, code, data in events if code == "o") == "hi\r\n"
        assert info["durationMs"] == round(1000 * events[-1][0])
        assert piece["offset"] == piece["bytes"] == info["bytes"]


async def test_running_terminal_is_listed_as_being_recorded(tmp_path):
    settings = Settings(record=True, record_dir=str(tmp_path / "casts"))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.create("exec sleep 60")
        async with user_of(host) as user:

            async def listed():
                found = await user.request("recording/list")
                return found["recordings"] and found["recordings"][0]["recording"] and found

            found = await poll_until(listed)
            assert found["enabled"]
            assert found["recordings"][0]["owner"] == "agent"


async def test_recording_that_begins_while_recordings_are_listed_is_shown_as_such(
    tmp_path, monkeypatch
):
    settings = Settings(record=True, record_dir=str(tmp_path / "casts"), audit=False)
    async with (
        open_host(settings, current()) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):

        async def begin():
            await agent.create("exec sleep 60")
            (entry,) = host.terminals.registry
            await poll(lambda: entry.record.recorded is not None)

        def list_recordings(directory, listing=library.list_recordings):
            trio.from_thread.run(begin)
            return listing(directory)

        monkeypatch.setattr(library, "list_recordings", list_recordings)
        (found,) = (await user.request("recording/list"))["recordings"]
        assert found["recording"]


async def test_recordings_are_listed_from_the_newest_on_with_what_can_be_read(
    settings, tmp_path, monkeypatch
):
    write_cast(tmp_path)
    write_cast(tmp_path, "20260201T000000Z-term_01.cast", events=())
    write_cast(tmp_path, "20260202T000000Z-term_02.cast").write_text("x\ny\n")
    long = [[1, "o", "a"], [3.5, "o", "\x1b" * 5000]]
    write_cast(tmp_path, "20260203T000000Z-term_03.cast", events=long)
    write_cast(tmp_path, "20260229T999999Z-term_04.cast")  # no time
    write_cast(tmp_path, "notes.txt")
    (tmp_path / "casts" / "20260204T000000Z-term_05.cast").symlink_to("notes.txt")
    (tmp_path / "casts" / "20260205T000000Z-term_06.cast").mkdir()
    async with open_host(settings, current()) as host, user_of(host) as user:
        found = await user.request("recording/list")
        rows = [(one["terminalId"], one["durationMs"], one["cols"]) for one in found["recordings"]]
        assert rows == [
            ("term_03", 3500, 80),
            ("term_02", None, None),
            ("term_01", 0, 80),
            ("term_00", 2250, 80),
        ]
        assert (found["omitted"], found["enabled"]) == (0, False)
        assert found["recordings"][3]["owner"] == "agent"
        assert found["recordings"][3]["startedAt"] == 1769855400000
        monkeypatch.setattr(library, "LISTED_MAX", 4)
        found = await user.request("recording/list")
        assert (len(found["recordings"]), found["omitted"]) == (1, 3)


async def test_missing_directory_has_no_recordings(settings):
    async with open_host(settings, current()) as host, user_of(host) as user:
        assert (await user.request("recording/list"))["recordings"] == []


async def test_long_recording_is_read_in_pieces_of_whole_characters(
    settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(library, "PIECE_BYTES", 10)
    path = write_cast(tmp_path, events=[(1, "o", "äöü€" * 9)])
    async with open_host(settings, current()) as host, user_of(host) as user:
        text, offset = "", 0
        while True:
            piece = await user.request("recording/read", {"name": NAME, "offset": offset})
            text, offset = text + piece["data"], piece["offset"]
            if offset >= piece["bytes"]:
                break
        assert text == path.read_text()
        past = await user.request("recording/read", {"name": NAME, "offset": offset + 99})
        assert past["data"] == ""


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "20260131T103000Z-../../x.cast",
        "20260131T103000Z-link.cast",
        "20260131T103000Z-directory.cast",
        "20260131T103000Z-none.cast",
        "20260131T103000Z-fifo.cast",
        f"{NAME}\n",
        f"{NAME}\0",
        "",
    ],
)
async def test_no_other_file_than_a_recording_can_be_read(settings, tmp_path, name):
    write_cast(tmp_path)
    (tmp_path / "secret").write_text("secret")
    casts = tmp_path / "casts"
    (casts / "20260131T103000Z-link.cast").symlink_to("../secret")
    (casts / "20260131T103000Z-directory.cast").mkdir()
    os.mkfifo(casts / "20260131T103000Z-fifo.cast")
    async with open_host(settings, current()) as host, user_of(host) as user:
        with trio.fail_after(DEADLINE_S):
            error = await refused(user, "recording/read", {"name": name})
        assert error.code in (RESOURCE_NOT_FOUND, INTERNAL_ERROR)
        assert "secret" not in error.message or name == "../secret"
