"""The losses of programs that write, delete or read files."""

import fnmatch
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from acpterm.config.profiles import Kind
from acpterm.policy.losses.arguments import enter, has_option, is_spared, operands_of, value_of
from acpterm.policy.losses.loss import LINE_CHARS_MAX, THROWS, WORDS_MAX, Loss, Need
from acpterm.policy.losses.table import listed_paths
from acpterm.policy.words import UNKNOWN_TEXT

# Programs that change all their operands: the reason, and the options with a value.
_OPERANDS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("rm", "unlink", "trash", "trash-put"), ("deletes {}", "")),
    **dict.fromkeys(("shred", "wipe", "scrub"), ("destroys {}", "ns")),
    **dict.fromkeys(("tee", "sponge"), ("overwrites {}", "")),
    **dict.fromkeys((">", ">|", "&>", ">&", "<>"), ("overwrites {}", "")),
    **dict.fromkeys((">>", "&>>", "split", "patch"), ("", "")),
    "truncate": ("empties {}", "srI"),
}
# Programs that write to the file that an option names.
_OUTPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "curl": ("o", "--output"),
    "wget": ("O", "--output-document"),
    "pg_dump": ("f", "--file"),
    "mysqldump": ("r", "--result-file"),
    "sort": ("o", "--output"),
    "ssh-keygen": ("f",),
    "tar": ("f", "--file"),
}
_NO_FILES: Final = re.compile(r"-|/dev/.*|/proc/self/fd/.*|&?\d+|")
_CURL_FILE: Final = re.compile(r"^[^/@]*@([^;]+)|file://(.+)")
# What git cannot do without. A lock is none of these.
_GIT_FILES: Final = re.compile(
    r"(?:^|/)\.git/*(?:/(?:(?:HEAD|ORIG_HEAD|packed-refs|index|\*)|(?:refs|objects|logs)(?:/.*)?))?$"
    r"(?<!\.lock)"
)
_SPARED_BY_RSYNC: Final = ("nub", "--dry-run", "--ignore-existing", "--backup", "--update")
_COPIERS: Final = frozenset(("cp", "mv", "install", "ln"))
# Modes with which a file in `~/.ssh` stays private.
_PRIVATE: Final = re.compile(r"0?[67]00|0?[46][04]0|0?[67]44|go[-=]\S*|u\S*|400")
_AWKS: Final = frozenset(("awk", "gawk", "mawk", "nawk"))
_EDITORS: Final = {
    **dict.fromkeys(_AWKS, re.compile("inplace")),
    "sed": re.compile(r"-[a-zA-Z]*i.*|--in-place.*"),
    **dict.fromkeys(("vim", "vi", "nvim", "ex"), re.compile(r"-[a-zA-Z]*s[a-zA-Z]*")),
    **dict.fromkeys(("perl", "ruby"), re.compile(r"-[a-zA-Z0-9]*i\S*")),
}
_GREPS: Final = frozenset(
    (*_AWKS, "grep", "egrep", "fgrep", "rg", "ag", "zgrep", "sed", "jq", "yq")
)
_AWK_FILE: Final = re.compile(r"\bprintf?\b[^;}>|]{0,200}>\s{0,9}\"([^\">]{1,200})\"")
_SED_FILE: Final = re.compile(r"(?:^|[;/{\d]|[/|,]g?)\s{0,9}w\s{1,9}([^;\s}]{1,200})$")
WRITERS: Final = frozenset(
    (*_AWKS, *_OPERANDS, *_OUTPUTS, "uniq", *_COPIERS, *_EDITORS, "dd", "scp", "rsync", "ffmpeg",
     "chmod", "zip", "7z")
)  # fmt: skip


def _targets(name: str, texts: list[str]) -> tuple[str, list[str]]:  # noqa: C901, PLR0911, PLR0912  one for each form
    """Return how a program changes files, as a reason, and the files; none for other programs."""
    if row := _OPERANDS.get(name):
        is_added = (name == "tee" and has_option(texts, "a", "--append")) or (
            name == "truncate" and (value_of(texts, "s", "--size") or "")[:1] in (*"+>%",)
        )
        return "" if is_added else row[0], operands_of(texts, row[1])
    if name in _COPIERS:
        return _copied(name, texts)
    if name in ("zip", "7z", "tar") and (
        has_option(texts, "m" if name == "zip" else "", "--move", "--remove-files")
        or "-sdel" in texts
    ):
        return "deletes {}", operands_of(texts, "f")[0 if name == "tar" else 1 :]
    if name in _OUTPUTS:
        letter, *names = _OUTPUTS[name]
        output = value_of(texts, letter, *names)
        if name == "tar":
            is_made = has_option(texts, "c", "--create", values="fCTXIb")
            is_plain = texts and re.match(r"\w*c\w*f|\w*f\w*c", texts[0])
            output = "".join(texts[1:2]) if is_plain else output if is_made else None
        if name == "curl" and has_option(texts, "O", "--remote-name", values="XHdoFuATbeEm"):
            output = output or next((posixpath.basename(one) for one in texts if "://" in one), "")
        is_kept = (name == "ssh-keygen" and has_option(texts, "lyRFHBLA")) or (
            name == "sort" and output in operands_of(texts, "oktST")
        )
        return "overwrites {}", [output] if output and not is_kept else []
    if name == "uniq":
        return "overwrites {}", operands_of(texts, "fsw")[1:2]
    if name in ("vim", "vi", "nvim", "ex") and any(
        one.lstrip("+:").startswith("%d") for one in texts
    ):
        return "empties {}", operands_of(texts, "cu")
    if name == "dd":
        return "overwrites {}", [one[3:] for one in texts if one.startswith("of=")]
    if name == "ffmpeg":
        return "overwrites {}", texts[-1:] if "-y" in texts else []
    if name in ("scp", "rsync"):
        *sources, last = operands_of(texts, "ef" if name == "rsync" else "ciFloPS") or [""]
        if ":" in last or not sources:
            return "", []
        is_kept = name == "rsync" and is_spared(texts, *_SPARED_BY_RSYNC)
        names = [re.split("[/:]", one)[-1] for one in sources if one[-1:] not in ("/", ".")]
        # Into the home directory: the start-up files.
        whole = "~/.profile" if last in ("~", "~/") else last
        paths = [whole, *(posixpath.join(last, one) for one in names)]
        return "overwrites {}" if names and not is_kept else "", paths
    if name == "chmod" and not any(map(_PRIVATE.fullmatch, texts)):
        return "", [one for one in operands_of(texts)[1:] if ".ssh" in one]
    return "overwrites {}", _from_script(name, texts)


def _from_script(name: str, texts: list[str]) -> list[str]:
    """Return the files that a script of sed or awk writes, as far as it names them."""
    if name in ("sed", *_AWKS):
        pattern = _AWK_FILE if name in _AWKS else _SED_FILE
        return [found for one in texts for found in pattern.findall(one)]
    return []


def _copied(name: str, texts: list[str]) -> tuple[str, list[str]]:
    values = "tSmog" if name == "install" else "tS"
    letters = "bn" if name in ("cp", "mv") else "b"
    if is_spared(texts, letters, "--no-clobber", "--backup", "--update", values=values) or (
        name == "install" and has_option(texts, "d")
    ):
        return "", []
    operands = operands_of(texts, values)
    given = value_of(texts, "t", "--target-directory")
    directory = given or "".join(operands[-1:])
    sources = [one for one in operands if one != given] if given else operands[:-1]
    inside = [posixpath.join(directory, posixpath.basename(one.rstrip("/"))) for one in sources]
    is_kept = name == "ln" and not has_option(texts, "f", "--force")
    return "" if is_kept else "overwrites {}", inside if given or not inside else [
        directory,
        *inside,
    ]


def _in_place(name: str, texts: list[str]) -> list[str]:
    """Return the files that a program edits in place, with `UNKNOWN_TEXT`."""
    option = _EDITORS.get(name)
    if option is None or not any(map(option.fullmatch, texts)):
        return []
    if name != "sed":
        return operands_of(texts, "eEcu")
    has_script = has_option(texts, "ef", "--expression", "--file")
    return operands_of(texts, "efl")[0 if has_script else 1 :]


# The names of files that another command of the line finds, or the pattern by which it does.
_FOUND: Final = re.compile(
    r"(?:-i?name|--include=?|-g|ls-files) +['\"]?([\w./*-]*\*[\w./*-]*)"
    r"|\bgrep (?:-\S+ )+(?:'[^']*'|\"[^\"]*\"|\S+) ([\w./ -]+?) *\|"
)


def _found_in(line: str) -> tuple[str, ...]:
    """Return patterns of git for the files that a command may get from the others of its line."""
    found = _FOUND.search(line[:LINE_CHARS_MAX])
    return tuple((found[1] or found[2]).split()) if found else (".",)


def written_losses(name: str, texts: list[str], directory: str | None, line: str) -> Iterator[Loss]:
    """Yield the losses of writing files: start-up files, and what exists."""
    reason, paths = _targets(name, texts)
    edited = _in_place(name, texts)
    for path in (*paths, *edited):
        full = full_path(path, directory)
        if written := _place_loss(full):
            yield written
            break
    if edited:
        known = tuple(one for one in edited if UNKNOWN_TEXT not in one)
        if len(known) < len(edited):
            known = ("", *_found_in(line))
        yield Loss(Kind.WORK, THROWS, Need.MANY, known, directory, is_plain=False)
    known = tuple(one for one in paths if UNKNOWN_TEXT not in one and not _NO_FILES.fullmatch(one))
    if (
        reason
        and paths
        and not known
        and paths[0] == UNKNOWN_TEXT
        and name in ("rm", "truncate", "unlink")
        and "mktemp" not in line
    ):
        # The names come from another command.
        yield _perhaps("empty" if name == "truncate" else "delete", directory)
    elif reason and known:
        need = Need.DELETED if reason.startswith("deletes") else Need.OVERWRITTEN
        yield from _by_kind(reason, need, known, directory)
    if name == "mv":
        moved = operands_of(texts, "tS")
        if moved[-1:] == ["/dev/null"]:
            yield from _by_kind("deletes {}", Need.DELETED, moved[:-1], directory)
        else:
            moved = [one for one in moved[:-1] if _GIT_FILES.search(one)]
            yield from _by_kind("moves {}, which git needs", Need.DELETED, moved, directory)
    if name in ("cp", "patch", "rsync"):
        yield from _copied_over(name, texts, directory)


def _place_loss(full: str) -> Loss | None:
    """Return the loss of writing a path that has a meaning of its own."""
    path = posixpath.normpath(full) if full else ""
    if listed_paths("device").search(path) and not full.startswith("/dev/null"):
        return Loss(Kind.DATA, f"overwrites {shown(full)}, a device")
    if listed_paths("startup").search(path):
        what = "a key file" if ".ssh" in full else "a start-up or system file"
        kind = Kind.SCHEDULE if "/cron" in full or "/spool/" in full else Kind.STARTUP
        return Loss(kind, f"writes {shown(full)}, {what}")
    return None


def _perhaps(verb: str, directory: str | None) -> Loss:
    """Return the loss of files whose names are not known."""
    reason = f"may {verb} files that git cannot restore"
    return Loss(Kind.WORK, reason, Need.UNSAVED, (), directory, is_plain=False)


def _by_kind(
    reason: str, need: Need, paths: Sequence[str], directory: str | None
) -> Iterator[Loss]:
    """Yield the losses of paths: those of git's own are the history's."""
    own = tuple(one for one in paths if _GIT_FILES.search(one))
    others = tuple(one for one in paths if one not in own)
    for kind, some in ((Kind.HISTORY, own), (Kind.WORK, others)):
        if some:
            yield Loss(kind, reason, need, some[:WORDS_MAX], directory, is_plain=False)


def _copied_over(name: str, texts: list[str], directory: str | None) -> Iterator[Loss]:
    """Yield the loss of copying what is in a directory over another, or of taking a patch back."""
    if name == "patch":
        if has_option(texts, "R", "--reverse") and not is_spared(texts, "", "--dry-run"):
            yield Loss(Kind.WORK, THROWS, Need.CHANGED, (".",), directory, is_plain=False)
        return
    *sources, target = operands_of(texts, "tS" if name != "rsync" else "ef") or [""]
    if name == "rsync":
        is_over = any(one.endswith(("/", "/.")) for one in sources) and ":" not in target
        is_kept = is_spared(texts, *_SPARED_BY_RSYNC)
    else:
        is_over = has_option(texts, "T", "--no-target-directory") or any(
            one.endswith("/.") for one in sources
        )
        is_kept = not has_option(texts, "raR", "--recursive", "--archive") or is_spared(
            texts, "nub", "--no-clobber", "--backup", "--update"
        )
    if is_over and not is_kept and UNKNOWN_TEXT not in target:
        yield _perhaps("overwrite", enter(directory, target))


def full_path(path: str, directory: str | None) -> str:
    if path.startswith(("/", "~")) or not directory:
        return path
    return posixpath.join(directory, path)


def shown(path: str) -> str:
    return path.replace(UNKNOWN_TEXT, "…").replace("{", "").replace("}", "")


# The names of the files that a command gets from a loop or from another command.
_NAMED: Final = re.compile(
    r"\bfor\s+\w+\s+in\s+([^;\n]+)|(?<!-not )(?<!! )-i?name\s+(\S+)|\bfind\s+(\S+)"
    r"|\b(?:ls|echo|printf)\s+([^|;\n]+)\|"
)


def _named_in(line: str) -> list[str]:
    names = itertools.chain.from_iterable(_NAMED.findall(line[:LINE_CHARS_MAX]))
    return [one.strip("'\"") for text in names for one in text.split()]


def _may_match_secret(pattern: str) -> bool:
    """Return whether a shell may find a file with secrets by a pattern, such as `.en*`."""
    name = posixpath.basename(pattern)
    return name.startswith(".") and any(
        fnmatch.fnmatchcase(one, name) for one in (".env", ".env.local") if name.strip(".*?")
    )


def read_losses(  # noqa: C901  one branch for each form
    name: str, texts: list[str], directory: str | None, line: str
) -> Iterator[Loss]:
    if name in _GREPS and is_spared(
        texts, "qcl" if name.endswith("grep") else "", "--quiet", "--count"
    ):
        return
    paths = list(texts)
    if name in ("cp", "mv", "install", "ln", "rsync", "scp"):
        paths = operands_of(texts, "teiSP")[:-1]
        # A copy of the project's own file stays in the project.
        is_inside = (
            bool(texts) and not texts[-1].startswith(("/", "~", "..")) and ":" not in texts[-1]
        )
        paths = [
            one for one in paths if not is_inside or not posixpath.basename(one).startswith(".env")
        ]
    elif name == "ssh-keygen":
        paths = [] if not has_option(texts, "y") else texts
    elif name in ("curl", "wget", "http"):
        paths = [
            next(filter(None, match.groups())) for one in texts if (match := _CURL_FILE.search(one))
        ]
        for option in ("-T", "--upload-file", "--post-file", "--body-file"):
            paths += [b for a, b in itertools.pairwise(texts) if a == option]
            paths += [one.partition("=")[2] for one in texts if one.startswith(f"{option}=")]
    elif name in ("sed", "awk", "gawk", "mawk", "nawk", "grep", "egrep", "fgrep", "rg", "jq", "yq"):
        paths = operands_of(texts, "ef" if "grep" in name else "e")[
            0 if has_option(texts, "ef") else 1 :
        ]
        if _in_place(name, texts):
            paths = []
    elif name in ("tar", "zip", "7z"):
        paths = [
            b
            for a, b in itertools.pairwise(("", *texts))
            if a not in ("--exclude", "-x") and "--exclude=" not in b
        ]
    elif name in ("python", "python3", "node", "php"):
        paths = []
    if UNKNOWN_TEXT in paths:
        paths = [*paths, *_named_in(line)]
    for path in paths:
        full = full_path(path, directory)
        if listed_paths("secret").search(
            posixpath.normpath(full) if full else ""
        ) or _may_match_secret(full):
            yield Loss(Kind.SECRETS, f"reads {shown(full)}, which has secrets")
            return
