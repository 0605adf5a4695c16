"""What an attached window is sent."""

import base64

from acpterm.host.user.attach import BEHIND_BYTES
from acpterm.terminal.vt.emulator import Emulator
from tests.support.user import UserTerminals, user_of

SIZE = {"cols": 60, "rows": 10}


async def test_window_that_falls_behind_shows_output_after_each_update(host, user):
    script = "echo 0; read x; seq 200000; echo the end; read x"
    terminal = await user.create(f"bash -c '{script}'", **SIZE)
    await UserTerminals(user).until_output(terminal, "0")
    async with user_of(host) as other:
        _, token = await other.open("terminal/attach", terminalId=terminal, **SIZE)
        updates = other.by_token[token]
        await other.until(lambda: updates)
        other.pause()
        await user.terminal_request("write", terminal, data="\n")
        await UserTerminals(user).until_output(terminal, "the end")
        position = (await user.terminal_request("get", terminal))["position"]
        assert position > 2 * BEHIND_BYTES
        other.resume()
        await other.until(lambda: updates[-1]["params"].get("position") == position)
    window, texts = Emulator(**SIZE), []
    for update in updates:
        window.feed(base64.b64decode(update["params"]["data"]))
        texts.append(window.screen().text())
    assert "the end" in texts[-1]
    assert all("0" in text for text in texts)
