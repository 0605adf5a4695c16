"""Private views of git repositories, in which git executes and fetches nothing.

A repository, which an agent can write, may make git execute programs by its settings: filters,
monitors, hooks, what fetches a missing object. So git gets another directory as the repository,
with settings of ours. The references, logs and objects are those of the repository. Its own
settings are only read as data, by the parser here.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

Settings: TypeAlias = Mapping[str, str]
"""The values of settings; sections and names are in lower case."""

_FILE_BYTES_MAX: Final = 256 * 1024
_INCLUDES_MAX: Final = 8
# Settings that change what git finds, but not what it executes.
_CARRIED: Final = re.compile(
    r"core\.(?:autocrlf|eol|excludesfile|attributesfile|filemode|ignorecase|symlinks|trustctime"
    r"|checkstat|precomposeunicode|sparsecheckout|sparsecheckoutcone)"
    r"|extensions\.(?:objectformat|refstorage)|branch\.[^\n\0]+\.(?:remote|merge)"
    r"|remote\.[^\n\0]+\.fetch"
)
_CONSTANTS: Final = (
    ("core.repositoryformatversion", "1"), ("core.fsmonitor", "false"), ("core.quotepath", "false"),
    ("core.hookspath", "/dev/null"), ("core.untrackedcache", "keep"), ("core.pager", "cat"),
    ("log.showsignature", "false"), ("submodule.recurse", "false"),
)  # fmt: skip
# Commits that operands may name.
_HEADS: Final = ("HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD")
_ENTRY: Final = re.compile(
    r"""\[(?P<section>[\w.-]+)(?:[ \t]+"(?P<sub>(?:[^"\\\n]|\\.)*)")?[ \t]*\]"""
    r"""|(?P<key>[a-zA-Z][\w-]*)[ \t]*"""
    r"""(?:=(?P<value>(?:"(?:[^"\\]|\\[^\0])*"|\\[^\0]|[^"\\#;\n])*))?"""
    r"""|[#;][^\n]*"""
)
_PIECE: Final = re.compile(r'\\(\n|.)|"|[^\\"]+')
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


class Repository(NamedTuple):
    """Where the parts of a repository are."""

    git: str
    """The directory with `HEAD` and the index."""
    common: str
    """The directory with what all worktrees share."""
    top: str | None
    """The directory of the files; None if there is none."""
    settings: Settings


def find_repository(directory: str, home: str) -> Repository | None:
    """Return the repository of a directory. Raises `OSError` or `ValueError` if it is not valid."""
    current = os.path.realpath(directory)
    while True:
        git = os.path.join(current, ".git")
        if (text := read_file(git, follow=True)) is not None:
            git = os.path.join(current, _pointed(text, "gitdir: "))
        for one, top in ((git, current), (current, None)):
            if os.path.lexists(os.path.join(one, "HEAD")):
                common = one
                if (text := read_file(os.path.join(one, "commondir"), follow=True)) is not None:
                    common = os.path.join(one, _pointed(text))
                if all(os.path.isdir(os.path.join(common, name)) for name in ("objects", "refs")):
                    return _repository(os.path.realpath(one), os.path.realpath(common), top, home)
        above = os.path.dirname(current)
        if above == current:
            return None
        current = above


def _pointed(text: str, start: str = "") -> str:
    if not text.startswith(start):
        raise ValueError(text[:20])
    return text.removeprefix(start).rstrip("\n")


def _repository(git: str, common: str, top: str | None, home: str) -> Repository:
    settings = user_settings(home)
    config = os.path.join(common, "config")
    text = read_file(config)
    if os.path.lexists(config) and (text is None or len(text) >= _FILE_BYTES_MAX):
        raise ValueError(config)
    own = _settings(config, home)
    settings.update(own)
    if git != common:
        # Those of the main worktree.
        own = {}
    if settings.get("extensions.worktreeconfig", "").lower() in ("true", "yes", "on", "1"):
        own |= _settings(os.path.join(git, "config.worktree"), home)
        settings.update(own)
    if "core.worktree" in own:
        top = os.path.normpath(os.path.join(git, own["core.worktree"]))
    return Repository(git, common, top, settings)


def user_settings(home: str) -> dict[str, str]:
    """Return the user's settings for all repositories."""
    found: dict[str, str] = {}
    for path in ("/etc/gitconfig", f"{home}/.config/git/config", f"{home}/.gitconfig"):
        found.update(_settings(path, home, follow=True))
    return found


def _settings(path: str, home: str, *, follow: bool = False) -> dict[str, str]:
    """Return the settings in a file, and in those that it includes."""
    found: dict[str, str] = {}
    paths = [path]
    for number, one in enumerate(paths):
        for name, value in parsed(read_file(one, follow=follow or number > 0) or ""):
            if re.fullmatch(r"include(?:if\..*)?\.path", name, re.DOTALL):
                if len(paths) < _INCLUDES_MAX:
                    paths.append(
                        os.path.join(
                            os.path.dirname(one), home + value[1:] if value[:2] == "~/" else value
                        )
                    )
            else:
                found[name] = value
    return found


def parsed(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of settings in the text of a file."""
    section = ""
    for match in _ENTRY.finditer(text):
        if match["section"]:
            section = match["section"].lower()
            if match["sub"] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", match["sub"])
        elif match["key"]:
            value = "true" if match["value"] is None else _unquoted(match["value"])
            yield f"{section}.{match['key'].lower()}", value


def _unquoted(text: str) -> str:
    return "".join(
        _ESCAPES.get(piece[1], piece[1]) if piece[1] is not None else piece[0].strip('"')
        for piece in _PIECE.finditer(text.strip())
    )


def read_file(path: str, *, follow: bool = False) -> str | None:
    """Return the beginning of a regular file; None for anything else. Opens no pipe or device."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        if not stat.S_ISREG(os.stat(path, follow_symlinks=follow).st_mode):
            return None
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.fsdecode(file.read(_FILE_BYTES_MAX))


@contextmanager
def view_of(repository: Repository) -> Iterator[dict[str, str]]:
    """Make a private view of a repository; yield the variables with which git uses it."""
    git, common = repository.git, repository.common
    view = tempfile.mkdtemp(prefix="acpterm-git-")
    try:
        with open(os.path.join(view, "config"), "w", errors="surrogateescape") as file:
            file.writelines(_lines(repository))
        for name in _HEADS:
            if (text := read_file(os.path.join(git, name))) is not None:
                with open(os.path.join(view, name), "w", errors="surrogateescape") as file:
                    file.write(text)
        for name in ("refs", "packed-refs", "info", "shallow", "reftable"):
            if os.path.exists(os.path.join(common, name)):
                os.symlink(os.path.join(common, name), os.path.join(view, name))
        os.mkdir(os.path.join(view, "logs"))
        os.symlink(os.path.join(git, "logs/HEAD"), os.path.join(view, "logs/HEAD"))
        os.symlink(os.path.join(common, "logs/refs"), os.path.join(view, "logs/refs"))
        env = {
            "GIT_DIR": view,
            "GIT_OBJECT_DIRECTORY": os.path.join(common, "objects"),
            "GIT_INDEX_FILE": os.path.join(git, "index"),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_GRAFT_FILE": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_ADVICE": "0",
        }  # fmt: skip
        if repository.top is not None:
            env["GIT_WORK_TREE"] = repository.top
        yield env
    finally:
        shutil.rmtree(view, ignore_errors=True)


def _lines(repository: Repository) -> Iterator[str]:
    is_bare = "true" if repository.top is None else "false"
    carried = [one for one in repository.settings.items() if _CARRIED.fullmatch(one[0])]
    for name, value in (*carried, *_CONSTANTS, ("core.bare", is_bare)):
        section, _, key = name.rpartition(".")
        section, _, sub = section.partition(".")
        yield f'[{section} "{_escaped(sub)}"]\n' if sub else f"[{section}]\n"
        yield f'{key} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text).replace("\n", "\\n")
