"""The losses of programs that write, delete or read files."""

import itertools
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from acpterm.config.profiles import Kind
from acpterm.policy.losses.arguments import has_option, operands_of, value_of
from acpterm.policy.losses.loss import LINE_CHARS_MAX, THROWS, WORDS_MAX, Loss, Need
from acpterm.policy.losses.table import CURL_FILE, GREPS, NO_FILES, SECRET, STARTUP
from acpterm.policy.words import UNKNOWN_TEXT


def _targets(name: str, texts: list[str]) -> tuple[str, list[str]]:  # noqa: C901, PLR0911, PLR0912  one for each form
    """Return how a program changes files, as a reason, and the files; none for other programs."""
    if name in (">", ">|", "&>", ">&", "<>"):
        return "overwrites {}", texts[:1]
    if name in (">>", "&>>"):
        return "", texts[:1]
    if name in ("rm", "unlink", "trash", "srm"):
        return "deletes {}", operands_of(texts)
    if name in ("cp", "mv", "install", "ln", "gcp", "gmv"):
        if has_option(
            texts, "n" if name in ("cp", "mv") else "", "--no-clobber", "--backup", "--update"
        ) or (name == "install" and has_option(texts, "d")):
            return "", []
        directory = value_of(texts, "t", "--target-directory")
        operands = operands_of(texts, "tSmog" if name == "install" else "tS")
        if directory:
            operands = [one for one in operands if one != directory]
            return "overwrites {}", [
                posixpath.join(directory, posixpath.basename(one)) for one in operands
            ]
        if len(operands) < 2:
            return "", []
        *sources, last = operands
        inside = [posixpath.join(last, posixpath.basename(one.rstrip("/"))) for one in sources]
        is_kept = name == "ln" and not has_option(texts, "f", "--force")
        return "" if is_kept else "overwrites {}", [last, *inside]
    if name in ("tee", "sponge"):
        is_added = has_option(texts, "a", "--append")
        return "" if is_added else "overwrites {}", operands_of(texts)
    if name == "truncate":
        size = value_of(texts, "s", "--size") or ""
        return "" if size.startswith(("+", ">", "%")) else "empties {}", operands_of(texts, "srI")
    if name == "dd":
        return "overwrites {}", [one[3:] for one in texts if one.startswith("of=")]
    if name in ("curl", "wget"):
        output = value_of(texts, "o" if name == "curl" else "O", "--output", "--output-document")
        return "overwrites {}", [output] if output else []
    if name in ("scp", "rsync"):
        operands = operands_of(texts, "eiPp")
        last = operands[-1] if len(operands) > 1 else ""
        # Into the home directory: the start-up files.
        last = "~/.profile" if last in ("~", "~/") else last
        return "", [] if ":" in last else [last]
    if name in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", one) for one in texts):
        has_script = has_option(texts, "ef", "--expression", "--file")
        return "", operands_of(texts, "efl")[0 if has_script else 1 :]
    if (
        name == "tar"
        and texts
        and re.match(r"-?\w*c\w*f|-?\w*f\w*c", texts[0])
        and "--remove-files" not in texts
    ):
        output = value_of(texts, "f", "--file") or "".join(texts[1:2])
        return "overwrites {}", [output]
    if name == "ssh-keygen" and not has_option(texts, "lyRFHBLA"):
        output = value_of(texts, "f")
        return "overwrites {}", [output] if output else []
    if name == "sort":
        output = value_of(texts, "o", "--output")
        inputs = operands_of(texts, "oktST")
        return "overwrites {}", [output] if output and output not in inputs else []
    if name == "uniq":
        return "overwrites {}", operands_of(texts, "fsw")[1:2]
    if name == "ffmpeg":
        return "overwrites {}", texts[-1:] if "-y" in texts else []
    if name == "qemu-img":
        return "overwrites {}", operands_of(texts, "fo")[1:2] if texts[:1] == ["create"] else []
    if name == "chmod":
        is_private = any(
            re.fullmatch(r"0?[67]00|0?[46][04]0|0?[67]44|go[-=]\S*|u\S*|400", one) for one in texts
        )
        return "", [] if is_private else [one for one in operands_of(texts)[1:] if ".ssh" in one]
    if name in ("zip", "7z", "tar"):
        # Archives whose sources are removed.
        is_moved = (
            has_option(texts, "m" if name == "zip" else "", "--move", "--remove-files")
            or "-sdel" in texts
        )
        return "deletes {}", operands_of(texts, "f")[
            1 if name != "tar" else 0 :
        ] if is_moved else []
    if name in ("split", "csplit", "patch", "touch", "mkdir"):
        return "", operands_of(texts)
    if name in ("sqlite3", "pg_dump", "mysqldump"):
        output = value_of(texts, "f", "--file", "--result-file") if name != "sqlite3" else None
        return "overwrites {}", [output] if output else []
    return "", []


def _in_place(name: str, texts: list[str]) -> list[str] | None:
    """Return the files that a program edits in place, with `UNKNOWN_TEXT`; None if it does not."""
    if name in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", one) for one in texts):
        has_script = has_option(texts, "ef", "--expression", "--file")
        return operands_of(texts, "efl")[0 if has_script else 1 :]
    if name in ("perl", "ruby") and any(re.fullmatch(r"-[a-zA-Z0-9]*i\S*", one) for one in texts):
        return operands_of(texts, "eE")
    return None


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
    for path in (*paths, *(edited or ())):
        full = full_path(path, directory)
        if name not in ("touch", "mkdir") and full and STARTUP.search(posixpath.normpath(full)):
            what = "a key file" if ".ssh" in full else "a start-up or system file"
            kind = Kind.SCHEDULE if "/cron" in full or "/spool/" in full else Kind.STARTUP
            yield Loss(kind, f"writes {shown(full)}, {what}")
            break
    if edited:
        known = tuple(one for one in edited if UNKNOWN_TEXT not in one)
        if len(known) < len(edited):
            known = ("", *_found_in(line))
        yield Loss(Kind.WORK, THROWS, Need.MANY, known, directory, is_plain=False)
    known = tuple(one for one in paths if UNKNOWN_TEXT not in one and not NO_FILES.fullmatch(one))
    if (
        reason
        and paths
        and not known
        and paths[0] == UNKNOWN_TEXT
        and name in ("rm", "truncate", "unlink")
    ):
        # The names come from another command.
        yield Loss(Kind.WORK, reason, Need.UNSAVED, (), directory, is_plain=False)
    elif reason and known:
        need = Need.DELETED if reason.startswith("deletes") else Need.OVERWRITTEN
        yield Loss(Kind.WORK, reason, need, known[:WORDS_MAX], directory, is_plain=False)


def full_path(path: str, directory: str | None) -> str:
    if path.startswith(("/", "~")) or not directory:
        return path
    return posixpath.join(directory, path)


def shown(path: str) -> str:
    return path.replace(UNKNOWN_TEXT, "…").replace("{", "").replace("}", "")


def read_losses(  # noqa: C901  one branch for each form
    name: str, texts: list[str], directory: str | None
) -> Iterator[Loss]:
    if name in GREPS and has_option(
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
            next(filter(None, match.groups())) for one in texts if (match := CURL_FILE.search(one))
        ]
        for option in ("-T", "--upload-file", "--post-file", "--body-file"):
            paths += [b for a, b in itertools.pairwise(texts) if a == option]
            paths += [one.partition("=")[2] for one in texts if one.startswith(f"{option}=")]
    elif name in ("sed", "awk", "gawk", "mawk", "nawk", "grep", "egrep", "fgrep", "rg", "jq", "yq"):
        paths = operands_of(texts, "ef" if "grep" in name else "e")[
            0 if has_option(texts, "ef") else 1 :
        ]
        if name == "sed" and _in_place(name, texts) is not None:
            paths = []
    elif name in ("tar", "zip", "7z"):
        paths = [b for a, b in itertools.pairwise(("", *texts)) if a not in ("--exclude", "-x")]
    elif name in ("python", "python3", "node", "php"):
        paths = []
    for path in paths:
        full = full_path(path, directory)
        if SECRET.search(posixpath.normpath(full) if full else ""):
            yield Loss(Kind.SECRETS, f"reads {shown(full)}, which has secrets")
            return
