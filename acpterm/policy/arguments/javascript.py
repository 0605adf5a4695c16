"""Checks of arguments of JavaScript tools: node, package managers, tsc and vitest."""

import re
from collections.abc import Sequence
from typing import Final

from acpterm.policy.arguments.options import is_outside

_NODE_SAFE: Final = re.compile(
    r"-v|--version|-h|--help|-c|--check|--test|--test-(?:only|name-pattern=.*|reporter=(?:spec|tap|dot))"
    r"|--watch|--no-warnings|--trace-(?:warnings|uncaught|deprecation)|--enable-source-maps"
    r"|--max-old-space-size=\d+|--experimental-(?:strip-types|vm-modules|transform-types)"
    r"|--stack-trace-limit=\d+|--unhandled-rejections=\w+|--use-strict|--expose-gc"
)


def node(arguments: Sequence[str]) -> str:
    """Return why node could execute other code than that of its script; else empty."""
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


# Options of yarn that set a directory: `--global-f…`, `--modules-f…`, `--cache-f…`, and their
# abbreviations.
_YARN_DIRECTORY: Final = re.compile(r"--(?:global|modules|cache)-f[a-z]*|--(?:mo|modu|modules-?)")


def npm(arguments: Sequence[str]) -> str:
    """Return why npm is not safe with these arguments; empty if it is safe."""
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


def yarn(arguments: Sequence[str]) -> str:
    """Return why yarn could execute a command, or change the configuration; else empty."""
    command = next((one for one in arguments if not one.startswith("-")), "")
    if _YARN_UNSAFE.fullmatch(command):
        return f"yarn {command} may execute a command or change the configuration"
    at = arguments.index(command) if command else len(arguments)
    return _package_options(arguments[:at] if command in ("run", "test") else arguments, "~")


def bun(arguments: Sequence[str]) -> str:
    """Return why bun is not safe with these arguments; empty if it is safe."""
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


def npx(arguments: Sequence[str]) -> str:
    """Return why npx or bunx could execute code that is not in a package; else empty."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in ("-p", "--package") else 1
    if at >= len(arguments) and not {"--help", "-h", "--version", "-v"}.intersection(arguments):
        return "it executes its input"
    return _package_options(arguments[:at], "cC")


def tsc(arguments: Sequence[str]) -> str:
    """Return why tsc could read or write outside of the working directory; else empty."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument.startswith("@"):
            return f"{argument} has more options"
        value = argument.partition("=")[2] if argument.startswith("-") else argument
        if (before if value == argument else argument).startswith("-") and is_outside(value):
            return f"{before} {argument} leads out of the directory"
    return ""


_VITEST_UNSAFE: Final = re.compile(
    r"--(?:config|root|dir|globalSetup|outputFile|api|ui|open|reporter|environment|browser|execArgv"
    r"|poolOptions|runner|snapshotEnvironment|configLoader|coverage\.(?!enabled|provider=(?:v8|istanbul)$))"
    r".*|-[cr].*",
    re.IGNORECASE,
)


def vitest(arguments: Sequence[str]) -> str:
    """Return why vitest is not safe with these arguments; empty if it is safe."""
    found = next((one for one in arguments if _VITEST_UNSAFE.fullmatch(one)), "")
    return f"the option {found} may execute code or write elsewhere" if found else ""
