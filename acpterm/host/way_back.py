"""Whether `acpterm undo` would bring back all that a command may lose. When in doubt: no."""

import glob
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from acpterm.config.profiles import Kind
from acpterm.policy.losses.loss import LATE, Finding, Loss, Need
from acpterm.undo.scan import FILES_ONLY

_FILES: Final = frozenset((Need.DELETED, Need.OVERWRITTEN, Need.MANY, Need.CHANGED, Need.CLEANED))
_STATE: Final = frozenset((Need.BRANCH, Need.MOVED, Need.PUSHED, Need.RESET, Need.STASH, Need.TAG))
_MATCHES_MAX: Final = 256


class Kept(NamedTuple):
    """What was kept before a question or a command."""

    why: str | None
    """Why not all is kept; "" if it is, None if nothing is meant to be."""
    root: str = ""
    skipped: tuple[str, ...] = ()
    """The paths, relative to `root`, of what is not kept."""


def brings_back(lost: Mapping[Loss, Finding] | None, kept: Kept, directory: str, home: str) -> bool:
    """Return whether all of `lost` comes back, of a command in `directory`. Reads directories."""
    return (
        kept.why in ("", FILES_ONLY)
        and bool(lost)
        and all(_comes_back(*item, kept, directory, home) for item in (lost or {}).items())
    )


def _comes_back(loss: Loss, finding: Finding, kept: Kept, directory: str, home: str) -> bool:
    is_known = loss.directory is not None and finding is not None and finding != LATE
    if not is_known or loss.kind not in (Kind.WORK, Kind.HISTORY):
        return False
    place = os.path.join(directory, _expanded(loss.directory or "", home))
    if loss.need in (Need.DELETED, Need.OVERWRITTEN) or (
        loss.need is Need.MANY and loss.operands[0]
    ):
        paths = [os.path.join(place, _expanded(one, home)) for one in loss.operands]
        return _are_kept(paths, kept, is_written=loss.need is not Need.DELETED)
    is_own = os.path.lexists(os.path.join(kept.root, ".git")) and _is_own(
        os.path.join(os.path.realpath(place), ""), kept.root
    )
    if not is_own or (loss.need not in _FILES and (loss.need not in _STATE or kept.why)):
        return False
    # git names files from the top of the repository, except those that it cleans.
    base = place if loss.need is Need.CLEANED else kept.root
    is_of_files = loss.need in _FILES or loss.need is Need.RESET
    return not is_of_files or _are_kept([os.path.join(base, one) for one in finding or ()], kept)


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _are_kept(paths: Iterable[str], kept: Kept, *, is_written: bool = False) -> bool:
    found: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.lexists(path)
        # The place of a pattern is examined first: the whole disk is not read.
        fixed = itertools.takewhile(lambda one: not glob.has_magic(one), path.split("/"))
        if is_pattern and not _is_own(os.path.realpath(f"{'/'.join(fixed)}/x"), kept.root):
            return False
        matches = glob.iglob(path) if is_pattern else [path]
        found += itertools.islice(matches, _MATCHES_MAX + 1)
    return len(found) <= _MATCHES_MAX and all(
        _is_kept(one, kept, is_written=is_written) for one in found
    )


def _is_kept(path: str, kept: Kept, *, is_written: bool) -> bool:
    """Return whether a file, or a directory with all that is in it, is kept."""
    directory, name = os.path.split(path.rstrip("/"))
    # A link is deleted, but written through; `link/` is what it leads to.
    is_name = name not in ("", ".", "..") and not is_written and not path.endswith("/")
    real = os.path.join(os.path.realpath(directory), name) if is_name else os.path.realpath(path)
    below = os.path.relpath(real, kept.root)
    return (
        _is_own(real, kept.root)
        and not (kept.why and ".git" in below.split("/"))
        and not any(_is_near(below, one) for one in kept.skipped)
    )


def _is_near(path: str, other: str) -> bool:
    """Return whether one path is, or is in, the other."""
    return path == "." or f"{path}/".startswith(f"{other}/") or other.startswith(f"{path}/")


def _is_own(path: str, root: str) -> bool:
    """Return whether a path is in `root`, and in no repository that is inside of it."""
    place = path
    while len(place) > len(root):
        place = os.path.dirname(place)
        if place != root and os.path.lexists(os.path.join(place, ".git")):
            return False
    return place == root
