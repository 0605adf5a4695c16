"""Checks of the arguments of programs that are safe only with some arguments.

A check returns why the arguments of a program are not safe, because they could make it execute a
command, lose data, change its configuration, or write outside of the working directory; an empty
text if they are safe. `unsafe_argument` selects the check by the name of the program.
"""

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from acpterm.config.profiles import PROJECT_COMMANDS
from acpterm.policy.losses.arguments import given_option, operands_of
from acpterm.policy.losses.table import listed_paths, listed_words
from acpterm.policy.words import UNKNOWN_TEXT, Word

Check: TypeAlias = Callable[[Sequence[str]], str]


def _because(argument: str) -> str:
    return f"{argument} makes it execute something or write a file" if argument else ""


def _is_outside(path: str) -> bool:
    """Return whether a path may lead out of the working directory."""
    return path.startswith(("/", "~")) or ".." in path.split("/")


def _uniq(arguments: Sequence[str]) -> str:
    output = operands_of(arguments, "fsw")[1:]
    return f"it writes {output[0]}" if output else ""


def _tee(arguments: Sequence[str]) -> str:
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            if argument in ("-a", "-i", "-p", "--append", "--ignore-interrupts"):
                continue
            return f"the option {argument} is not known"
        if argument in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            continue
        if _is_outside(argument) or any(
            part.startswith(".") and part != "." for part in argument.split("/")
        ):
            return f"it writes {argument}"
    return ""


def _stays_inside(arguments: Sequence[str]) -> str:
    outside = next(filter(_is_outside, arguments), "")
    return f"{outside} is outside of the directory" if outside else ""


def _project(arguments: Sequence[str]) -> str:
    return _stays_inside([one for text in arguments for one in (text, text.partition("=")[2])])


def _unsafe(arguments: Sequence[str], *, unsafe: re.Pattern[str]) -> str:
    return _because(next(filter(unsafe.fullmatch, arguments), ""))


_SED_OPTION: Final = re.compile(r"-[nEruz]+|--quiet|--silent|--regexp-extended|--debug")
_SED_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)++/)"
_SED_SCRIPT: Final = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,\+?{_SED_ADDRESS})?)?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n]|\\.)*+\1(?:(?!\1)[^\\\n]|\\.)*+\1[gpI\d]*+"
)
# `|` is a pipe to or from a command, `@` loads an extension, and a backslash at the end of a line
# can split a word of this list.
_AWK_UNSAFE: Final = re.compile(r"system|getline|[|@]|/inet|ENVIRON|\\\n")


def _sed(arguments: Sequence[str]) -> str:
    scripts: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in ("-e", "--expression"):
            at += 1
            scripts += arguments[at : at + 1]
        elif not _SED_OPTION.fullmatch(arguments[at]):
            return _because(arguments[at])
        at += 1
    scripts = scripts or list(arguments[at : at + 1])
    if any(one.startswith("-") for one in arguments[at:]):
        return "an option after the script may execute a command or write a file"
    # Not every sed ends `/[/` at the second slash.
    parts = (part for one in scripts for part in (one.split(";") if "[" not in one else [one]))
    if not all(map(_SED_SCRIPT.fullmatch, parts)):
        return "the script may execute a command or write a file"
    return ""


def _awk(arguments: Sequence[str]) -> str:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        at += 1
        if argument == "--":
            break
        if argument in ("-F", "-v"):
            at += 1
        elif not argument.startswith(("-F", "-v")) or argument.startswith("--"):
            return f"the option {argument} may load code"
    if at >= len(arguments):
        return ""
    program = arguments[at].replace("||", "")
    # The expression `print.*>` would take quadratic time.
    is_output = ">" in program.partition("print")[2]
    if is_output or _AWK_UNSAFE.search(program):
        return "the program may execute a command or write a file"
    return ""


# Options that, with at least one command of git, execute a program, or write a file or a
# configuration. They are unsafe with each command.
_GIT_UNSAFE: Final = (
    "--config", "--config-env", "--exec", "--exec-path", "--ext-diff", "--extcmd",
    "--filters",
    "--open-files-in-pager", "--output", "--output-directory", "--receive-pack", "--textconv",
    "--upload-pack",
)  # fmt: skip
_GIT_OPTIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    # For each command: the letters of unsafe short options, the unsafe long options, and the
    # letters of safe short options that take a value.
    "am": ("", ("--directory",), "C"),
    "apply": ("", ("--directory", "--unsafe-paths"), "pC"),
    "archive": ("o", ("--remote",), ""),
    "branch": ("dDfmMC", ("--delete", "--force", "--move", "--edit-description"), "u"),
    "clone": ("cu", ("--separate-git-dir", "--template"), "bjo"),
    "fetch": ("f", ("--force",), "jo"),
    "format-patch": ("o", (), "v"),
    "gc": ("", ("--prune",), ""),
    "grep": ("O", (), "efmABC"),
    "init": ("", ("--separate-git-dir", "--template"), "b"),
    "mv": ("f", ("--force",), ""),
    "pull": ("f", ("--force",), "josX"),
    "push": ("fd", ("--force", "--force-with-lease", "--delete", "--mirror", "--prune"), "o"),
    "read-tree": ("", ("--reset",), ""),
    "rebase": ("xi", ("--interactive",), "sXC"),
    "restore": ("W", ("--worktree",), "s"),
    "rm": ("f", ("--force",), ""),
    "submodule": ("f", ("--force",), ""),
    "switch": ("fC", ("--force", "--discard-changes", "--force-create"), "c"),
    "tag": ("df", ("--delete", "--force"), "mFu"),
    "worktree": ("f", ("--force",), "bB"),
}
# Operands that are rather paths than branches: `./src`, `src/`, `a.py`, `*.c`, `:/`.
_GIT_PATH: Final = re.compile(r"^\.{0,2}/|/$|\.[A-Za-z]\w*$|[*?\[:]")
_GIT_ACTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    # For each command whose first operand is an action: the unsafe actions.
    "bundle": re.compile("create"),
    "maintenance": re.compile("start|stop|register|unregister"),
    "reflog": re.compile("expire|delete"),
    "remote": re.compile("add|set-url|rename|rm|remove|set-head|set-branches|update|prune|show"),
    "stash": re.compile("drop|clear"),
    "submodule": re.compile("foreach|set-url|add|deinit"),
    "worktree": re.compile("remove"),
}
_GIT_TRANSPORTS: Final = frozenset(
    ("clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule")
)


def _git(arguments: Sequence[str]) -> str:  # noqa: PLR0911  one for each reason
    """Return why git may execute, lose, configure, or write outside of the working directory."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        at += 1
        if argument == "-C":
            if _is_outside(arguments[at] if at < len(arguments) else "/"):
                return "it executes what another directory configures"
            at += 1
        elif argument not in (
            "--no-pager", "-P", "--version", "-v", "--help", "-h", "--no-optional-locks",
            "--no-replace-objects", "--literal-pathspecs", "--glob-pathspecs",
            "--noglob-pathspecs", "--icase-pathspecs", "--bare",
        ):  # fmt: skip
            return f"the option {argument} may change what git executes"
    if at >= len(arguments):
        return ""
    command, rest = arguments[at], arguments[at + 1 :]
    if command == "config":
        return "" if _is_git_query(rest) else "it may change what git executes"
    if command not in listed_words("git-safe"):
        return f"git {command} is not in the list of safe commands of git"
    letters, names, values = _GIT_OPTIONS.get(command, ("", (), ""))
    # The second search skips no values, since it is not known which options of all commands take
    # one. So `git log -S --output=x` is unsafe, although `--output=x` is the value of `-S`.
    found = given_option(rest, letters, names, values) or given_option(rest, "", _GIT_UNSAFE)
    if found:
        return f"git {command} {found} may execute a program, lose data or write elsewhere"
    return _git_operands(command, rest)


def _git_operands(command: str, rest: Sequence[str]) -> str:  # noqa: PLR0911  one for each case
    operands = [one for one in rest if not one.startswith("-")]
    actions = _GIT_ACTIONS.get(command)
    if actions and operands and actions.fullmatch(operands[0]):
        return f"git {command} {operands[0]} may execute a program, lose data or write elsewhere"
    if command in _GIT_TRANSPORTS and any("::" in one for one in rest):
        return "a transport (::) may execute a program"
    if command == "push" and any(one.startswith(("+", ":")) for one in operands):
        return "it overwrites or deletes a branch"
    if command == "checkout" and ("--" in rest or "." in operands or _has_paths(rest, operands)):
        return "it discards changes"
    if command == "restore" and not ("--staged" in rest or "-S" in rest):
        return "it discards changes"
    if command in ("clone", "init") and any(
        _is_outside(one) and "://" not in one for one in operands
    ):
        return "it writes outside of the directory"
    return ""


def _has_paths(rest: Sequence[str], operands: Sequence[str]) -> bool:
    # A single operand may be a branch or a path.
    creates = any(one.startswith(("-b", "-B", "-t", "--track", "--orphan")) for one in rest)
    return len(operands) > (0 if any(map(_GIT_PATH.search, operands)) else 1) and not creates


def _is_git_query(rest: Sequence[str]) -> bool:
    """Return whether `git config` with the arguments `rest` only reads the configuration."""
    if rest and rest[0] in ("--list", "-l"):
        return len(rest) == 1
    if len(rest) == 1:
        return re.fullmatch(r"[\w-]+\.[\w.-]+", rest[0]) is not None
    return (
        len(rest) in (2, 3)
        and rest[0] in ("--get", "--get-all", "--get-regexp")
        and not any(one.startswith("-") for one in rest[1:])
    )


_NODE_SAFE: Final = re.compile(
    r"-v|--version|-h|--help|-c|--check|--test|--test-(?:only|name-pattern=.*|reporter=(?:spec|tap|dot))"
    r"|--watch|--no-warnings|--trace-(?:warnings|uncaught|deprecation)|--enable-source-maps"
    r"|--max-old-space-size=\d+|--experimental-(?:strip-types|vm-modules|transform-types)"
    r"|--stack-trace-limit=\d+|--unhandled-rejections=\w+|--use-strict|--expose-gc"
)


def _node(arguments: Sequence[str]) -> str:
    for argument in arguments:
        if argument.startswith("-"):
            if not _NODE_SAFE.fullmatch(argument):
                return f"the option {argument} may execute code"
            continue
        return _stays_inside([argument])
    return "" if arguments else "it executes its input"


_NPM_UNSAFE: Final = (
    "--cache", "--call", "--globalconfig", "--git", "--init-module", "--location", "--global",
    "--logs-dir", "--node-options", "--onload-script", "--pack-destination", "--prefix",
    "--script-shell", "--shell", "--tag-version-prefix", "--userconfig", "--editor", "--viewer",
    "--cwd", "--use-yarnrc", "--dir",
    "--eval", "--print", "--preload", "--require", "--import", "--env-file", "--install-dir",
    "--global-folder", "--modules-folder", "--cache-folder",
)  # fmt: skip


def _npm(arguments: Sequence[str]) -> str:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    found = _package_options(own, "Cgc")
    if found:
        return found
    command = next((one for one in own if not one.startswith("-")), "")
    if command and command not in listed_words("npm-safe"):
        return f"npm {command} is not in the list of safe commands of npm"
    return ""


def _package_options(own: Sequence[str], letters: str) -> str:
    for argument in own:
        name = argument.partition("=")[0]
        # They accept abbreviations.
        if len(name) > 3 and any(one.startswith(name) for one in _NPM_UNSAFE):
            return f"the option {argument} may execute code or write elsewhere"
        if re.match(rf"-[a-zA-Z]*[{letters}]", argument):
            return f"the option {argument} may execute code or write elsewhere"
    return ""


_YARN_UNSAFE: Final = re.compile(
    r"config|exec|global|link|login|logout|npm|owner|publish|plugin|set|tag|team|token|unplug"
)


def _yarn(arguments: Sequence[str]) -> str:
    command = next((one for one in arguments if not one.startswith("-")), "")
    if _YARN_UNSAFE.fullmatch(command):
        return f"yarn {command} may execute a command or change the configuration"
    at = arguments.index(command) if command else len(arguments)
    return _package_options(arguments[:at] if command in ("run", "test") else arguments, "~")


def _bun(arguments: Sequence[str]) -> str:
    command = next((one for one in arguments if not one.startswith("-")), "")
    if not arguments or command in ("exec", "upgrade", "repl", "link", "publish", "-"):
        return f"bun {command} may execute code or change the installation"
    at = arguments.index(command) if command else len(arguments)
    if command in ("run", "test", "x"):
        # Options before the name of the script are bun's own; those after it are the script's.
        script = next((one for one in arguments[at + 1 :] if not one.startswith("-")), "")
        at = arguments.index(script, at + 1) if script else len(arguments)
    own = arguments if command in ("install", "add", "i", "a", "remove") else arguments[: at + 1]
    return _package_options(own, "eprcg") or ("it executes its input" if "-" in arguments else "")


def _npx(arguments: Sequence[str]) -> str:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in ("-p", "--package") else 1
    if at >= len(arguments) and not {"--help", "-h", "--version", "-v"}.intersection(arguments):
        return "it executes its input"
    return _package_options(arguments[:at], "cC")


def _tsc(arguments: Sequence[str]) -> str:
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("@"):
            return f"{argument} has more options"
        value = argument.partition("=")[2] if argument.startswith("-") else argument
        if (before if value == argument else argument).startswith("-") and _is_outside(value):
            return f"{before} {argument} leads out of the directory"
    return ""


def _options(arguments: Sequence[str], *, unsafe: tuple[str, tuple[str, ...], str]) -> str:
    return _because(given_option(arguments, *unsafe))


# Programs that write to files among their operands, to which a pattern could add more files.
_NO_GLOBS: Final = frozenset(("tee", "uniq"))
_OPTIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    # As in `_GIT_OPTIONS`.
    "date": ("s", ("--set",), "dfr"),
    "diff": ("l", ("--paginate",), "UCIWDFSxX"),
    "fd": ("xX", ("--exec", "--exec-batch"), "eEtdSoc"),
    "fdfind": ("xX", ("--exec", "--exec-batch"), "eEtdSoc"),
    "rg": ("z", ("--pre", "--hostname-bin", "--search-zip"), "efgmtABC"),
    "file": ("CzZ", ("--compile", "--uncompress"), "efFmP"),
    "lsof": ("D", (), "acdgipsu"),
    **dict.fromkeys(("pip", "pip3"), ("", ("--python", "--log"), "")),
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory"), "ktS"),
    "tree": ("oR", ("--output",), "LPIHT"),
}
# Arguments with which a program prints the environment of a process, evaluates text or assigns.
_UNSAFE: Final = {
    "find": re.compile(r"-(?:exec|ok|delete|fprint|fls|files0-from).*"),
    "hostname": re.compile(
        r"(?!(?:-[aAdfiIsy]+|--(?:fqdn|long|short|domain|ip-address|all-ip-addresses|all-fqdns))$).*"
    ),
    "ipconfig": re.compile(
        r"(?!(?:/all|getifaddr|getpacket|getoption|ifcount|[a-z]+\d+|\w+_\w+)$).*"
    ),
    "jq": re.compile(r".*(?:\$ENV|\benv\b).*", re.DOTALL),
    "printf": re.compile(r"-v.*"),
    "ps": re.compile(r"[a-zA-Z]*e[a-zA-Z]*|-[a-zA-Z]*E.*|.*env.*"),
    **dict.fromkeys(("test", "["), re.compile(r"-[vR]")),
    "vitest": re.compile(
        r"--(?:config|root|dir|globalSetup|outputFile|api|ui|open|reporter|environment|browser|execArgv"
        r"|pool|runner|snapshotEnvironment|configLoader"
        r"|coverage\.(?!enabled|provider=(?:v8|istanbul)$)).*|-[cr].*",
        re.IGNORECASE,
    ),
}
_CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys((one.partition(" ")[0] for one in PROJECT_COMMANDS), _project),
    **{name: partial(_unsafe, unsafe=unsafe) for name, unsafe in _UNSAFE.items()},
    **dict.fromkeys(("mkdir", "touch"), _stays_inside),
    **{name: partial(_options, unsafe=unsafe) for name, unsafe in _OPTIONS.items()},
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "bun": _bun,
    **dict.fromkeys(("bunx", "npx"), _npx),
    "git": _git,
    **dict.fromkeys(("node", "nodejs"), _node),
    "npm": _npm,
    "sed": _sed,
    "tee": _tee,
    "tsc": _tsc,
    "uniq": _uniq,
    "yarn": _yarn,
}


# Programs that may execute what the files of the directory say: its configuration or its code.
DIRECTORY_COMMANDS: Final = frozenset(
    one.partition(" ")[0] for one in ("git", "npm", "pip", "pip3", *PROJECT_COMMANDS)
)
# Programs that print names, and not what is in files.
_NAMES_ONLY: Final = frozenset(
    ("[", "basename", "df", "dirname", "du", "echo", "fd", "fdfind", "find", "ls", "mkdir",
     "printf", "readlink", "realpath", "stat", "test", "touch", "tree", "type", "which")
)  # fmt: skip
# What may have secrets beside the files that are known to (`SECRET`): their directories, histories,
# keys, mail; all of a home or of the system.
_PERHAPS_SECRET: Final = re.compile(
    r"(?:^|[/:=@])(?:\.(?:ssh(?!/(?:known_hosts|config|[^/]*\.pub)$)|gnupg|pki|aws|azure|kube|mozilla|thunderbird|terraform\.d"
    r"|Xauthority|npmrc|\.?credentials(?:\.\w+)?|(?:[a-z_]+_)?history|(?:cargo|gem|docker|m2)/(?:credentials|set)"
    r"|config/(?:gh|hub|op|gcloud|rclone|google-chrome|chromium|microsoft-edge|BraveSoftware)"
    r"|local/share/pass)(?:/|$)|[^/]*\.(?:pem|key)$|\.?(?:credentials|secrets?)\.(?:json|ya?ml|toml|ini|txt)$"
    r"|etc/(?:sudoers|ssl/private)|proc/[^/]+/(?:environ|mem|fd|root|cwd)|var/(?:mail|spool)(?:/|$))"
    r"|^(?:~[^/]*|/|/home(?:/[^/]+)?|/root)/?$"
)
# Patterns that may match the name of such a file.
_SECRET_GLOB: Final = re.compile(r"(?:^|/)\.[^/]*[*?[]|^/(?:etc|proc|home|root|\*|\?)\b")


def leads_outside(words: Sequence[Word], directory: str) -> bool:
    """Return whether `cd` with the arguments `words` may lead out of `directory`."""
    texts = [_relative(word.text, directory) for word in words]
    return not texts or any(text == "-" or UNKNOWN_TEXT in text or _is_outside(text)
                            for text in texts)  # fmt: skip


def is_inside(path: str, directory: str) -> bool:
    """Return whether an absolute path is `directory`, or in it; links are not followed."""
    return bool(directory) and f"{os.path.normpath(path)}/".startswith(f"{directory.rstrip('/')}/")


def is_secret(path: str, *, is_glob: bool = False) -> bool:
    """Return whether a path looks like one of a secret."""
    if path.isalpha():
        return False
    return bool(
        listed_paths("secret").search(path)
        or _PERHAPS_SECRET.search(path)
        or (is_glob and _SECRET_GLOB.search(path))
    )


def _relative(text: str, directory: str) -> str:
    """Return a path in `directory` relative to it; any other text unchanged."""
    if not is_inside(text, directory):
        return text
    return os.path.relpath(text, directory)


def unsafe_argument(words: Sequence[Word], directory: str = "") -> str:
    """Return why the arguments of a program are not safe; empty if they are safe."""
    name = words[0].text.rpartition("/")[2]
    texts = [_relative(word.text, directory) for word in words[1:]]
    if name not in _NAMES_ONLY:
        for word in words[1:]:
            # All of a home directory is secret, but not to be in it.
            text = f"{word.text}/." if name in ("cd", "chdir") else word.text
            if is_secret(text, is_glob=word.is_glob):
                return f"{word.text} may be a secret"
    check = _CHECKS.get(name)
    if check is None:
        return ""
    for word in words[1:]:
        if UNKNOWN_TEXT in word.text:
            return "an argument is computed"
        if word.may_become_option:
            return f"{word.text} may expand to an option: write ./{word.text}"
    if name in _NO_GLOBS and any(word.is_glob for word in words[1:]):
        return "a pattern may expand to several files"
    return check(texts)
