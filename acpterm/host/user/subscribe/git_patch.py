"""The change of one file as a patch in git's format: one hunk, from the first change to the last.

Lines that both versions have within the hunk are not searched for: that can take very long, and
this runs on the event loop.
"""

from itertools import chain
from typing import Final

_CONTEXT_LINES: Final = 3
_NO_NEWLINE: Final = "\\ No newline at end of file\n"


def git_patch(path: str, old: str | None, new: str) -> str | None:
    """Return the patch that turns `old` into `new`; `old` is None for a new file.

    Returns None if there is no change in text, or if git would have to quote `path`.
    """
    if not path.isprintable() or set(path) & set('"\\') or old == new:
        return None
    name = path.lstrip("/")
    head = [f"diff --git a/{name} b/{name}\n"]
    if old is None:
        head += ["new file mode 100644\n"]
    before, after = _lines(old or ""), _lines(new)
    if not before and not after:
        return "".join(head)
    head += [f"--- a/{name}\n" if old is not None else "--- /dev/null\n", f"+++ b/{name}\n"]
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    first = max(0, start - _CONTEXT_LINES)
    tail = min(end, _CONTEXT_LINES)
    removed, added = before[start : len(before) - end], after[start : len(after) - end]
    kept_after = before[len(before) - end :][:tail]
    counts = [start - first + len(lines) + tail for lines in (removed, added)]
    hunk = f"@@ -{_range(first, counts[0])} +{_range(first, counts[1])} @@\n"
    lines = chain(
        (_line(" ", line) for line in before[first:start]),
        (_line("-", line) for line in removed),
        (_line("+", line) for line in added),
        (_line(" ", line) for line in kept_after),
    )
    return "".join([*head, hunk, *lines])


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _common(one: list[str], two: list[str]) -> int:
    """Return how many lines both begin with."""
    for number, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return number
    return min(len(one), len(two))


def _range(first: int, count: int) -> str:
    return f"{first + 1 if count else first},{count}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"
