"""Selects entries of the audit log, for `acpterm audit` and for the user's clients."""

from typing import NamedTuple

from acpterm.audit.entry import Entry

_ID_PREFIX = "term_"


class Selection(NamedTuple):
    """The conditions that an entry must meet to be selected; a field with None is no condition.

    `since` and `until` limit the time, inclusively; they have the format of an entry's time
    (`entry.time_text`). `session`, `agent` and `terminal` are the beginning of an id or a name; in
    `terminal` the prefix `term_` may be left out. `event` and `decision` must be equal to those of
    the entry. An entry `gap` must meet only the conditions on time, since it stands for lost
    entries that could have been selected.
    """

    since: str | None = None
    until: str | None = None
    session: str | None = None
    agent: str | None = None
    terminal: str | None = None
    event: str | None = None
    decision: str | None = None

    def has(self, entry: Entry) -> bool:
        """Return whether `entry` is selected."""
        if self.since is not None and entry.time < self.since:
            return False
        if self.until is not None and entry.time > self.until:
            return False
        return entry.event == "gap" or (
            _begins(entry.session, self.session)
            and _begins(entry.agent, self.agent)
            and (
                _begins(entry.terminal, self.terminal)
                or _begins((entry.terminal or "").removeprefix(_ID_PREFIX), self.terminal)
            )
            and self.event in (None, entry.event)
            and self.decision in (None, entry.decision)
        )


def _begins(text: str | None, start: str | None) -> bool:
    return start is None or (text or "").startswith(start)
