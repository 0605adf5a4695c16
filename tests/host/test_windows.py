"""What an attached window is sent."""

import base64

import trio.testing

from acpterm.host.user import attach
from acpterm.terminal.vt.emulator import Emulator
from tests.support.depth import DEADLINE_S
from tests.support.user import UserTerminals, user_of

SIZE = {"cols": 60, "rows": 10}


async def test_window_that_falls_behind_shows_output_after_each_update(host, user):
    script = "echo begin; read x; seq 200000; echo the end; read x"
    terminal = await user.create("bash", args=["-c", script], **SIZE)
    await UserTerminals(user).until_output(terminal, "begin")
    async with user_of(host) as other:
        _, token = await other.open("terminal/attach", terminalId=terminal, **SIZE)
        updates = other.by_token[token]
        await other.until(lambda: updates)
        other.pause()
        await user.terminal_request("write", terminal, data="\n")
        await UserTerminals(user).until_output(terminal, "the end")
        position = (await user.terminal_request("get", terminal))["position"]
        assert position > 2 * attach.BEHIND_BYTES
        other.resume()
        await other.until(lambda: updates[-1]["params"].get("position") == position)
    window, texts = Emulator(**SIZE), []
    for update in updates:
        window.feed(base64.b64decode(update["params"]["data"]))
        texts.append(window.screen().text())
    assert "the end" in texts[-1]
    assert all(text.strip() for text in texts)


async def test_window_is_never_blank_when_it_is_repainted_or_the_terminal_is_resized(user):
    terminal = await user.create("seq 50; cat", **SIZE)
    await UserTerminals(user).until_output(terminal, "50")
    more = {"scrollback": True, "readOnly": True, **SIZE}
    _, token = await user.open("terminal/attach", terminalId=terminal, **more)
    updates, window, texts = user.by_token[token], Emulator(**SIZE), []

    async def until_shown(text):
        while not texts or text not in texts[-1]:
            await user.until(lambda: updates)
            window.feed(base64.b64decode(updates.pop(0)["params"]["data"]))
            texts.append(window.screen().text())

    await until_shown("50")
    texts.clear()
    for text, cols in (("painted", 50), ("smaller", 40), ("passed", 60), ("repainted", 60)):
        await user.terminal_request("resize", terminal, cols=cols, rows=10)
        await user.request("terminal/window", {"token": token, **SIZE})
        await user.terminal_request("write", terminal, data=text + "\n")
        await until_shown(text)
    assert all(text.strip() for text in texts)


async def test_main_screen_is_not_painted_while_a_full_screen_program_starts(user, monkeypatch):
    monkeypatch.setattr(attach, "_BLANK_MAX_S", DEADLINE_S)
    script = "stty -echo; read x; printf '\\033[?1049hfull'; read x"
    terminal = await user.create("bash", args=["-c", script], **SIZE)
    _, token = await user.open("terminal/attach", terminalId=terminal, **SIZE)
    await trio.testing.wait_all_tasks_blocked()
    assert (await user.terminal_request("get", terminal))["attached"] == 1
    assert not user.by_token[token]
    await user.terminal_request("write", terminal, data="\n")
    first = (await user.until(lambda: user.by_token[token]))[0]["params"]
    assert (first["kind"], first["alternate"]) == ("screen", True)
