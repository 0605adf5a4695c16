"""What editors show of a tool call: how each of them reads the updates of an agent.

A reader takes the messages that an editor receives. `shown` returns the text that its user sees of
a call: of `content`, if there is any, else of `rawOutput`.
"""

from typing import Any

Update = dict[str, Any]
FINAL = ("completed", "failed")


def texts(content: list[Any] | None) -> list[str]:
    """Return the texts in the content of a tool call."""
    items = [item["content"] for item in content or [] if item.get("type") == "content"]
    return [item["text"] for item in items if "text" in item]


def raw_text(raw: Any) -> list[str]:
    """Return the output in the `rawOutput` of a tool call."""
    text = raw if isinstance(raw, str) else (raw or {}).get("aggregated_output", "")
    return [text] if text else []


class Reader:
    """An editor as the protocol describes it: each update replaces the members that it has."""

    def __init__(self) -> None:
        self.calls: dict[str, Update] = {}
        self.order: dict[str, None] = {}

    def read(self, messages: list[Any]) -> "Reader":
        for message in messages:
            if message.get("method") == "session/update":
                update = message["params"]["update"]
                if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                    self.order[update["toolCallId"]] = None
                    self.update(update["toolCallId"], update)
        return self

    def update(self, call: str, update: Update) -> None:
        given = {name: value for name, value in update.items() if value is not None}
        self.calls[call] = {**self.calls.get(call, {}), **given}

    def shown(self, call: str) -> str:
        known = self.calls.get(call, {})
        return "\n".join(texts(known.get("content")) or raw_text(known.get("rawOutput")))

    def lines_of_calls(self) -> list[tuple[str, ...]]:
        """Return the lines that each call shows, in the order of the calls."""
        return [tuple(self.shown(call).splitlines()) for call in self.order]


class CodeCompanion(Reader):
    """CodeCompanion forgets a call that is completed: a later update becomes a call of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, str] = {}

    def update(self, call: str, update: Update) -> None:
        super().update(call, update)
        known = self.calls[call]
        if known.get("status") == "pending":
            return
        title = f"{known.get('kind', 'other')}: {known.get('title', 'Tool call')}"
        self.lines[call] = "\n".join([title, super().shown(call)])
        if known.get("status") == "completed":
            del self.calls[call]

    def shown(self, call: str) -> str:
        return self.lines.get(call, "")


class Avante(Reader):
    """avante.nvim shows what it has at the end of a call; it ignores empty content."""

    def __init__(self) -> None:
        super().__init__()
        self.at_end: dict[str, str] = {}

    def update(self, call: str, update: Update) -> None:
        if update.get("content") == []:
            update = {name: value for name, value in update.items() if name != "content"}
        super().update(call, update)
        if update.get("status") in FINAL:
            self.at_end[call] = super().shown(call)

    def shown(self, call: str) -> str:
        return self.at_end.get(call, super().shown(call))


class AgentShell(Reader):
    """The transcript of agent-shell has the content of the update that ends the call.

    Before it, it has the output that `_meta` has, although agent-shell does not ask for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.printed: dict[str, str] = {}

    def update(self, call: str, update: Update) -> None:
        output = (update.get("_meta") or {}).get("terminal_output", {})
        self.printed[call] = self.printed.get(call, "") + output.get("data", "")
        if update.get("status") in FINAL:
            self.calls[call] = update

    def shown(self, call: str) -> str:
        printed = self.printed.get(call, "")
        return f"{printed}\n{super().shown(call)}" if printed else super().shown(call)


class Acpx(Reader):
    """acpx prints a call at its end, and again for each later update that changes something."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: dict[str, list[str]] = {}

    def update(self, call: str, update: Update) -> None:
        super().update(call, update)
        if self.calls[call].get("status") in FINAL:
            known = self.calls[call]
            output = "\n".join([*raw_text(known.get("rawOutput")), *texts(known.get("content"))])
            printed = self.printed.setdefault(call, [])
            if printed[-1:] != [output]:
                printed.append(output)

    def shown(self, call: str) -> str:
        return "\n".join(self.printed.get(call, [super().shown(call)]))


class Marimo(Reader):
    """marimo joins the contents of all updates of a call."""

    def update(self, call: str, update: Update) -> None:
        before = self.calls.get(call, {}).get("content") or []
        super().update(call, update)
        self.calls[call]["content"] = [*before, *(update.get("content") or [])]


class Zed(Reader):
    """Zed rejects a call with an unknown terminal, and shows output that `_meta` has for it."""

    def __init__(self) -> None:
        super().__init__()
        self.terminals: dict[str, str] = {}

    def update(self, call: str, update: Update) -> None:
        meta = update.get("_meta") or {}
        if update["sessionUpdate"] == "tool_call" and (info := meta.get("terminal_info")):
            self.terminals.setdefault(info["terminal_id"], "")
        for item in update.get("content") or []:
            assert item["type"] != "terminal" or item["terminalId"] in self.terminals, update
        super().update(call, update)
        if output := meta.get("terminal_output"):
            self.terminals[output["terminal_id"]] += output["data"].replace("\r\n", "\n")

    def shown(self, call: str) -> str:
        content = self.calls.get(call, {}).get("content") or []
        ids = [item["terminalId"] for item in content if item["type"] == "terminal"]
        output = "\n".join(self.terminals[id_] for id_ in ids)
        return output if output.strip() else super().shown(call)


# Editors that show no terminals.
TEXT_READERS = (Reader, CodeCompanion, Avante, AgentShell, Acpx, Marimo)
