"""Arguments with which a safe program is not safe.

A program of the list of safe commands can still execute something, or write where the user did not
ask it to: `find -fprintf`, `sort -o`, `git -c core.pager=…`, `tee .git/hooks/x`. `unsafe_argument`
finds such arguments. For programs with many options (git, npm, node) it knows what is safe instead.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from acpterm.policy.words import UNKNOWN_TEXT, Word

Check = Callable[[Sequence[str]], str]


def unsafe_argument(words: Sequence[Word]) -> str:
    """Return why a safe program is not safe with its arguments; empty if it is."""
    name = words[0].text.rpartition("/")[2]
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
    return check([word.text for word in words[1:]])


def _options(arguments: Sequence[str], letters: str, names: Sequence[str], values: str = "") -> str:
    """Return the first argument that is one of some options, or may be read as one.

    `letters` are short options, `values` the short options that take a value. `names` are long
    options, of which getopt accepts beginnings.
    """
    skip = False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if argument == "--":
            break
        if argument.startswith("--"):
            given = argument.partition("=")[0]
            if any(name.startswith(given) for name in names):
                return argument
        elif argument.startswith("-"):
            for at, letter in enumerate(argument[1:], 2):
                if letter in letters:
                    return argument
                if letter in values:
                    skip = at == len(argument)
                    break
    return ""


def _because(argument: str) -> str:
    return f"{argument} makes it execute something or write a file" if argument else ""


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
    if re.search(r"system|getline|[|@]|/inet|\\\n|print[^\x00]*>", program):
        return "the program may execute a command or write a file"
    return ""


def _find(arguments: Sequence[str]) -> str:
    unsafe = re.compile(r"-(?:exec|ok|delete|fprint|fls|files0-from)")
    return _because(next((one for one in arguments if unsafe.match(one)), ""))


def _sort(arguments: Sequence[str]) -> str:
    return _because(
        _options(
            arguments, "oT", ("--output", "--compress-program", "--temporary-directory"), "ktS"
        )
    )


def _tree(arguments: Sequence[str]) -> str:
    return _because(_options(arguments, "oR", ("--output",), "LPIHT"))


def _uniq(arguments: Sequence[str]) -> str:
    values = {"-f", "-s", "-w"}
    operands = [
        one
        for before, one in zip(["", *arguments], arguments, strict=False)
        if before not in values and (one == "-" or not one.startswith("-"))
    ]
    return f"it writes {operands[1]}" if len(operands) > 1 else ""


def _diff(arguments: Sequence[str]) -> str:
    return _because(_options(arguments, "l", ("--paginate",), "UCIWDFSxX"))


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


def _is_outside(path: str) -> bool:
    """Return whether a path may lead out of the current directory."""
    return path.startswith(("/", "~")) or ".." in path.split("/")


def _hostname(arguments: Sequence[str]) -> str:
    safe = re.compile(
        r"-[aAdfiIsy]+|--(?:fqdn|long|short|domain|ip-address|all-ip-addresses|all-fqdns)"
    )
    wrong = next((one for one in arguments if not safe.fullmatch(one)), "")
    return f"{wrong} may set the name" if wrong else ""


def _ipconfig(arguments: Sequence[str]) -> str:
    if not arguments or arguments[0] in ("/all", "getifaddr", "getpacket", "getoption", "ifcount"):
        return ""
    return f"{arguments[0]} may change the configuration"


_GIT_SAFE: Final = frozenset(
    ("add", "am", "annotate", "apply", "archive", "blame", "branch", "bundle", "cat-file",
     "check-attr", "check-ignore", "check-mailmap", "check-ref-format", "checkout", "cherry",
     "cherry-pick", "clone", "commit", "commit-tree", "count-objects", "describe", "diff",
     "diff-files", "diff-index", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck",
     "gc", "grep", "hash-object", "help", "init", "log", "ls-files", "ls-remote", "ls-tree",
     "maintenance", "merge", "merge-base", "merge-file", "merge-tree", "mv", "name-rev", "notes",
     "pack-objects", "patch-id", "prune", "pull", "push", "range-diff", "read-tree", "rebase",
     "reflog", "remote", "repack", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog",
     "show", "show-branch", "show-ref", "sparse-checkout", "stash", "status", "submodule",
     "switch", "symbolic-ref", "tag", "var", "verify-commit", "verify-tag", "version",
     "whatchanged", "worktree", "write-tree")
)  # fmt: skip
# Options of some command of git that execute a program, or write a file or another configuration.
_GIT_UNSAFE: Final = (
    "--config", "--config-env", "--exec", "--exec-path", "--ext-diff", "--extcmd",
    "--open-files-in-pager", "--output", "--output-directory", "--receive-pack", "--textconv",
    "--upload-pack",
)  # fmt: skip
_GIT_OPTIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    # Short options that are not safe, long ones, and short ones with a value.
    "am": ("", ("--directory",), "C"),
    "apply": ("", ("--directory", "--unsafe-paths"), "pC"),
    "archive": ("o", ("--remote",), ""),
    "branch": ("DfMC", ("--force", "--edit-description"), "u"),
    "checkout": ("f", ("--force",), "bB"),
    "clone": ("cu", ("--separate-git-dir", "--template"), "bjo"),
    "commit": ("", (), "mFCctSuU"),
    "commit-tree": ("", (), "mFpS"),
    "fetch": ("f", ("--force",), "jo"),
    "format-patch": ("o", (), "v"),
    "grep": ("O", (), "efmABC"),
    "init": ("", ("--separate-git-dir", "--template"), "b"),
    "ls-remote": ("", (), "o"),
    "pull": ("f", ("--force",), "josX"),
    "push": ("fd", ("--force", "--force-with-lease", "--delete", "--mirror", "--prune"), "o"),
    "rebase": ("xi", ("--interactive",), "sXC"),
    "switch": ("fC", ("--force", "--discard-changes", "--force-create"), "c"),
    "tag": ("df", ("--delete", "--force"), "mFu"),
    "worktree": ("f", ("--force",), "bB"),
}
_GIT_ACTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    # Actions that are not safe, of commands whose first operand is an action.
    "bundle": re.compile("create"),
    "maintenance": re.compile("start|stop|register|unregister"),
    "reflog": re.compile("expire|delete"),
    "remote": re.compile("add|set-url|rename|rm|remove|set-head|set-branches"),
    "stash": re.compile("drop|clear"),
    "submodule": re.compile("foreach|set-url|add"),
    "worktree": re.compile("remove"),
}
_GIT_TRANSPORTS: Final = frozenset(
    ("clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule")
)


def _git(arguments: Sequence[str]) -> str:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        at += 1
        if argument == "-C":
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
    if command not in _GIT_SAFE:
        return f"git {command} is not in the list of safe commands of git"
    letters, names, values = _GIT_OPTIONS.get(command, ("", (), ""))
    # `git log -S text`: what follows an option that is not known here may be its value.
    found = _options(rest, letters, names, values) or _options(rest, "", _GIT_UNSAFE)
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
    if command == "checkout" and ("--" in rest or "." in operands):
        return "it discards changes"
    if command == "restore" and not ("--staged" in rest or "-S" in rest):
        return "it discards changes"
    if command in ("clone", "init") and any(
        _is_outside(one) and "://" not in one for one in operands
    ):
        return "it writes outside of the directory"
    return ""


def _is_git_query(rest: Sequence[str]) -> bool:
    """Return whether arguments of `git config` only read."""
    if rest and rest[0] in ("--list", "-l"):
        return len(rest) == 1
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
        return ""
    return "" if arguments else "it executes its input"


_NPM_SAFE: Final = frozenset(
    ("add", "audit", "bin", "build", "c", "ci", "cit", "completion", "create", "ddp", "dedupe",
     "diff", "doctor", "exec", "explain", "find-dupes", "fund", "help", "help-search", "i", "in",
     "info", "init", "innit", "ins", "install", "install-ci-test", "install-test", "it", "la",
     "list", "ll", "ls", "outdated", "pack", "ping", "prefix", "prune", "query", "r", "rb",
     "rebuild", "remove", "restart", "rm", "root", "rum", "run", "run-script", "s", "se", "search",
     "show", "start", "stop", "t", "test", "tst", "un", "uninstall", "unlink", "up", "update",
     "upgrade", "urn", "v", "version", "view", "whoami", "why", "x")
)  # fmt: skip
_NPM_UNSAFE: Final = (
    "--cache", "--call", "--globalconfig", "--git", "--init-module", "--location", "--global",
    "--logs-dir", "--node-options", "--onload-script", "--pack-destination", "--prefix",
    "--script-shell", "--shell", "--tag-version-prefix", "--userconfig", "--editor", "--viewer",
    "--cwd", "--use-yarnrc", "--dir",
    "--eval", "--print", "--preload", "--require", "--import", "--env-file", "--install-dir",
)  # fmt: skip


# Directories of yarn: --modules-f…, and so on.
_YARN_DIRECTORY: Final = re.compile(r"--(?:global|modules|cache)-f[a-z]*|--(?:mo|modu|modules-?)")


def _npm(arguments: Sequence[str]) -> str:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    found = _package_options(own, "Cgc")
    if found:
        return found
    command = next((one for one in own if not one.startswith("-")), "")
    if command and command not in _NPM_SAFE:
        return f"npm {command} is not in the list of safe commands of npm"
    return ""


def _package_options(own: Sequence[str], letters: str) -> str:
    for argument in own:
        name = argument.partition("=")[0]
        is_unsafe = any(one.startswith(name) for one in _NPM_UNSAFE)
        if len(name) > 3 and (is_unsafe or _YARN_DIRECTORY.fullmatch(name)):
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
        # Options before the script are bun's.
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


_VITEST_UNSAFE: Final = re.compile(
    r"--(?:config|root|dir|globalSetup|outputFile|api|ui|open|reporter|environment|browser|execArgv"
    r"|poolOptions|runner|snapshotEnvironment|configLoader|coverage\.(?!enabled|provider=(?:v8|istanbul)$))"
    r".*|-[cr].*",
    re.IGNORECASE,
)


def _vitest(arguments: Sequence[str]) -> str:
    found = next((one for one in arguments if _VITEST_UNSAFE.fullmatch(one)), "")
    return f"the option {found} may execute code or write elsewhere" if found else ""


def _rg(arguments: Sequence[str]) -> str:
    return _because(
        _options(arguments, "z", ("--pre", "--hostname-bin", "--search-zip"), "efgmtABC")
    )


def _fd(arguments: Sequence[str]) -> str:
    return _because(_options(arguments, "xX", ("--exec", "--exec-batch"), "eEtdSoc"))


_SED_SCRIPT: Final = re.compile(
    r"(?:(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|s([/|#,])(?:(?!\1)[^\\\n]|\\.)*+\1(?:(?!\1)[^\\\n]|\\.)*+\1[gpI\d]*+)"
)


def _sed(arguments: Sequence[str]) -> str:
    scripts: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in ("-e", "--expression"):
            at += 1
            scripts += arguments[at : at + 1]
        elif not re.fullmatch(
            r"-[nEruz]+|--quiet|--silent|--regexp-extended|--debug", arguments[at]
        ):
            return _because(arguments[at])
        at += 1
    scripts = scripts or list(arguments[at : at + 1])
    if any(one.startswith("-") for one in arguments[at:]):
        return "an option after the script may execute a command or write a file"
    if not all(_SED_SCRIPT.fullmatch(script) for script in scripts):
        return "the script may execute a command or write a file"
    return ""


_NO_GLOBS: Final = frozenset(("tee", "uniq"))
_CHECKS: Final[Mapping[str, Check]] = {
    "awk": _awk,
    "bun": _bun,
    "bunx": _npx,
    "diff": _diff,
    "fd": _fd,
    "find": _find,
    "gawk": _awk,
    "git": _git,
    "hostname": _hostname,
    "ipconfig": _ipconfig,
    "mawk": _awk,
    "node": _node,
    "npm": _npm,
    "npx": _npx,
    "rg": _rg,
    "sed": _sed,
    "sort": _sort,
    "tee": _tee,
    "tree": _tree,
    "tsc": _tsc,
    "uniq": _uniq,
    "vitest": _vitest,
    "yarn": _yarn,
}
