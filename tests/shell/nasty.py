"""Random nasty commands whose exit code, output and directory are known.

A `Generator` models the state of one shell: its directory and its variable. Whatever a command
leaves behind (options, functions, traps, prompts, terminal modes, redirections) must not matter for
the next, so most of it is not modelled.
"""

import random
import shlex
from dataclasses import dataclass, field

#: The names of directories, which the generator's `setup` creates.
DIRECTORIES = [
    "plain", "with space", "new\nline", "quote'quote", 'dou"ble', "-dash", "ünïcödé", "dollar$HOME",
    "back\\slash", "semi;colon", "per%cent", "star*", "tab\there", "a" * 200,
]  # fmt: skip

_FORGED = "\\033]133;D;0\\007\\033]133;D;0;aid=0123456789abcdef;pid=1;n=1\\007\\033]133;C\\007"
_ESCAPES = [
    "\\033[2J\\033[H", "\\033[?1049h", "\\033[?1049l", "\\033]0;title\\007", "\\033]0;open title",
    "\\033[31mred\\033[0m", "\\033", "\\033]", "\\033]133;", "\\033P", "\\303", "\\377\\376",
    "a\\000b", "\\r", "\\b", "\\t", "\\007", "\\033[6", "\\033]133;D;aid=", _FORGED,
]  # fmt: skip
_WORDS = ["alpha", "é", "漢字", "x" * 300, "a b", "$x", "`y`", "!!", "*", "#", "~", "\\", "'", '"']


@dataclass
class Case:
    """A command and its known result. `code` is None if any code other than 0 is right."""

    command: str
    code: int | None = 0
    output: bytes | None = b""
    """What the terminal receives, without CR; None if it is not known."""
    ends_shell: bool = False
    what: str = ""
    cwd: str = ""


def _bytes(escaped: str) -> bytes:
    return escaped.encode().decode("unicode_escape").encode("latin-1")


@dataclass
class Generator:
    """Commands for one shell that starts in `home`."""

    kind: str
    seed: int
    home: str
    _random: random.Random = field(init=False)
    _cwd: str = ""
    _variable: str | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._cwd = self.home

    def restart(self) -> None:
        """Model a new shell."""
        self._cwd, self._variable = self.home, None

    def next(self) -> Case:
        """Return the next command."""
        name = self._random.choice(self._names())
        case = getattr(self, f"_case_{name}")()
        case.what = name
        if case.ends_shell:
            self.restart()
        case.cwd = self._cwd
        return case

    def _names(self) -> list[str]:
        names = [
            "echo", "printf", "lines", "status", "pipeline", "cd", "big_output", "big_command",
            "unbalanced", "forged", "ends", "function", "alias", "eats_input", "stty", "background",
            "remember", "recall", "comment", "negation", "loop", "return", "prompts", "interpreter",
            "gone",
        ]  # fmt: skip
        if self.kind != "fish":
            names += [
                "here_document", "settings", "errexit", "redirected", "traps", "xtrace", "hooks",
                "continuation", "case", "exits", "subshell",
            ]  # fmt: skip
        return names

    @property
    def _is_fish(self) -> bool:
        return self.kind == "fish"

    def _code(self) -> int:
        return self._random.choice([0, 1, 2, 3, 7, 42, 126, 127, 128, 130, 137, 200, 255])

    def _text(self) -> str:
        words = self._random.choices(_WORDS, k=self._random.randint(1, 5))
        return " ".join(words)

    def _quoted(self, text: str) -> str:
        if self._is_fish:
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return shlex.quote(text)

    def _print(self, text: str) -> str:
        """Return a command that prints `text`."""
        return f"builtin printf %s {self._quoted(text)}"

    def _exit_with(self, code: int) -> str:
        return f"sh -c 'exit {code}'" if self._is_fish else f"(exit {code})"

    def _case_echo(self) -> Case:
        text, code = self._text(), self._code()
        return Case(f"{self._print(text)}; {self._exit_with(code)}", code, text.encode())

    def _case_printf(self) -> Case:
        parts = [self._random.choice(_ESCAPES) for _ in range(self._random.randint(1, 4))]
        if self._is_fish:
            # fish prints bytes beyond ASCII by \x.
            parts = [part.replace("\\303", "\\x{c3}"[:2] + "c3") for part in parts]
            parts = [part.replace("\\377\\376", "\\xff\\xfe") for part in parts]
        return Case(f"builtin printf '{''.join(parts)}'", 0, _bytes("".join(parts)))

    def _case_forged(self) -> Case:
        code = self._code()
        command = f"builtin printf 'a{_FORGED}b'; {self._exit_with(code)}"
        return Case(command, code, _bytes(f"a{_FORGED}b"))

    def _case_lines(self) -> Case:
        texts = [self._text() for _ in range(self._random.randint(2, 12))]
        code = self._code()
        lines = [f"{self._print(text)}\necho" for text in texts]
        gap = self._random.choice(["\n", "\n\n", "\n# ' unbalanced \" in a comment\n", "\n\t \n"])
        command = gap.join([*lines, self._exit_with(code)])
        return Case(command, code, "".join(f"{text}\n" for text in texts).encode())

    def _case_status(self) -> Case:
        code = self._code()
        return Case(f"sh -c 'echo out; echo err >&2; exit {code}'", code, b"out\nerr\n")

    def _case_pipeline(self) -> Case:
        codes = [self._code() for _ in range(self._random.randint(2, 4))]
        return Case(" | ".join(f"sh -c 'exit {code}'" for code in codes), codes[-1])

    def _case_cd(self) -> Case:
        self._cwd = f"{self.home}/{self._random.choice(DIRECTORIES)}"
        return Case(f"builtin cd {self._quoted(self._cwd)}")

    def _case_gone(self) -> Case:
        back = self._quoted(self._cwd)
        command = (
            f"mkdir -p {self.home}/gone; builtin cd {self.home}/gone; rmdir {self.home}/gone"
            f"; builtin cd {back}"
        )
        return Case(command)

    def _case_big_output(self) -> Case:
        last = self._random.choice([100, 3000, 20000])
        return Case(f"seq {last}", 0, "".join(f"{i}\n" for i in range(1, last + 1)).encode())

    def _case_big_command(self) -> Case:
        size = self._random.choice([4096, 5000, 20_000, 100_000])
        count = size // 50
        text = "".join(f"{self._print(f'{i:040d}')}\n" for i in range(count))
        return Case(text, 0, "".join(f"{i:040d}" for i in range(count)).encode())

    def _case_unbalanced(self) -> Case:
        ends = ["'", '"', "(", "$("] if not self._is_fish else ["'", '"', "("]
        command = self._random.choice([f"echo {end}open" for end in ends])
        return Case(command, None, None)

    def _case_comment(self) -> Case:
        return Case(self._random.choice(["# nothing", "", "   ", "\n\n", "# it's open"]))

    def _case_negation(self) -> Case:
        code = 1 if self._random.random() < 0.5 else 0
        return Case(f"! {'true' if code else 'false'}", code)

    def _case_loop(self) -> Case:
        count = self._random.randint(1, 30)
        numbers = " ".join(map(str, range(count)))
        command = (
            f"for i in {numbers}; builtin printf '%s,' $i; end"
            if self._is_fish
            else f"for i in {numbers}\ndo\n  builtin printf '%s,' \"$i\"\ndone"
        )
        return Case(command, 0, "".join(f"{i}," for i in range(count)).encode())

    def _case_return(self) -> Case:
        code = self._code()
        return Case(f"{self._print('x')}; return {code}; echo never", code, b"x")

    def _case_ends(self) -> Case:
        if self._random.random() < 0.7:
            return self._case_echo()
        code = self._code()
        pid = "$fish_pid" if self._is_fish else '"$$"'
        command = self._random.choice(
            [f"exec sh -c 'echo replaced; exit {code}'", f"echo replaced; kill -9 {pid}"]
        )
        code = code if command.startswith("exec") else -1
        return Case(command, code, b"replaced\n", ends_shell=True)

    def _case_exits(self) -> Case:
        if self._random.random() < 0.7:
            return self._case_status()
        code = self._code()
        return Case(f"echo last; exit {code}; echo never", code, b"last\n", ends_shell=True)

    def _case_function(self) -> Case:
        names = ["source", "echo", "wait", "history"]
        if not self._is_fish:
            names += ["return", "shift", "test", "unset", "read", "true"]
        if self.kind == "bash":
            names += ["local", "export"]
        name = self._random.choice(names)
        code = self._code()
        if self._is_fish:
            text = f"function {name}; builtin printf in; end; {name}; functions -e {name}"
            return Case(f"{text}; sh -c 'exit {code}'", code, b"in")
        text = f"{name}() {{ builtin printf in; }}\n{name}\n(exit {code})"
        follow = f"unset -f {name}" if name != "unset" else "builtin unset -f unset"
        return Case(f'{text}; set -- "$?"; {follow}; (exit "$1")', code, b"in")

    def _case_alias(self) -> Case:
        text = self._random.choice(["one", "two"])
        return Case(f"alias nasty='builtin printf {text}'\nnasty", 0, text.encode())

    def _case_eats_input(self) -> Case:
        return Case("timeout --foreground 0.02 cat >/dev/null </dev/tty", 124)

    def _case_stty(self) -> Case:
        modes = ["sane", "-echo", "raw -echo", "-icrnl", "intr x", "-icanon", "eof q", "-isig"]
        return Case(f"stty {self._random.choice(modes)}; echo set", 0, b"set\n")

    def _case_background(self) -> Case:
        code = self._code()
        return Case(f"sh -c 'sleep 0.05 >/dev/null & exit {code}'", code)

    def _case_interpreter(self) -> Case:
        code = self._code()
        return Case(f"sh <<< 'echo in; exit {code}'" if not self._is_fish
                    else f"echo 'echo in; exit {code}' | sh", code, b"in\n")  # fmt: skip

    def _case_remember(self) -> Case:
        self._variable = self._text()
        quoted = self._quoted(self._variable)
        return Case(f"set -g nasty {quoted}; true" if self._is_fish else f"nasty={quoted}")

    def _case_recall(self) -> Case:
        text = "" if self._variable is None else self._variable
        command = 'builtin printf %s "$nasty"' if self._is_fish else 'builtin printf %s "${nasty-}"'
        return Case(command, 0, text.encode())

    def _case_prompts(self) -> Case:
        commands = {
            "bash": [
                "unset PROMPT_COMMAND", "PROMPT_COMMAND=", "PROMPT_COMMAND='true 1'", "PS0=",
                "PS1='$ '", "unset PS1", "PROMPT_COMMAND=(true true)", "PS1='\\w $(false)> '",
                "shopt -u promptvars", "shopt -s promptvars", "set -o vi", "set -o emacs",
            ],
            "zsh": [
                "precmd_functions=()", "preexec_functions=()", "PS1='%~ '", "unset PS1",
                "precmd() { true; }", "setopt prompt_subst", "bindkey -v", "bindkey -e",
            ],
            "fish": [
                "function fish_prompt; echo '> '; end", "fish_vi_key_bindings",
                "fish_default_key_bindings", "function fish_title; end",
            ],
        }  # fmt: skip
        return Case(f"{self._random.choice(commands[self.kind])}; true")

    def _case_here_document(self) -> Case:
        lines = [self._text() for _ in range(self._random.randint(0, 20))]
        text = "".join(f"{line}\n" for line in lines)
        tail = self._random.choice(["", "\n", "\n(exit 3)"])
        return Case(f"cat <<'E O F'\n{text}E O F{tail}", 3 if "exit" in tail else 0, text.encode())

    def _case_settings(self) -> Case:
        settings = [
            "IFS=0123456789", "IFS=", "unset IFS", "IFS=/:", "set -C", "set +C", "set -u", "set +u",
            "set -f", "set +f", "set -a", "set +a", "umask 077", "set -- a b c", "TERM=dumb",
            "TERM=xterm", "HISTCONTROL=", "LC_ALL=C", "unset LC_ALL", "unset HOME",
            "HOME=/nonexistent",
        ]  # fmt: skip
        return Case(self._random.choice(settings))

    def _case_errexit(self) -> Case:
        if self._random.random() < 0.5:
            return Case("set -e; false || builtin printf on; false && true; set +e", 0, b"on")
        code = self._random.choice([1, 2, 3, 42])
        return Case(
            f"set -e; builtin printf on; (exit {code}); echo never", code, b"on", ends_shell=True
        )

    def _case_redirected(self) -> Case:
        file = self._quoted(f"{self.home}/out file")
        code = self._code()
        return Case(
            f"exec >>{file} 2>&1; echo hidden; exec >/dev/tty 2>&1; echo shown; (exit {code})",
            code,
            b"shown\n",
        )

    def _case_traps(self) -> Case:
        if self._random.random() < 0.5:
            return Case("trap 'builtin printf err' ERR; (exit 4); trap - ERR", 0, b"err")
        code = self._code()
        return Case(f"(trap 'builtin printf bye' EXIT; exit {code})", code, b"bye")

    def _case_xtrace(self) -> Case:
        code = self._code()
        return Case(f"set -x; {{ set +x; }} 2>/dev/null; (exit {code})", code)

    def _case_hooks(self) -> Case:
        hooks = {
            "bash": 'eval "${PROMPT_COMMAND-}"',
            "zsh": "for f in $precmd_functions; do $f; done",
        }[self.kind]
        return Case(f"{hooks} >/dev/null; {self._print('after')}", 0, b"after")

    def _case_continuation(self) -> Case:
        return Case("builtin printf %s \\\n  a\\\nb |\n\n cat && \\\n builtin printf c", 0, b"abc")

    def _case_case(self) -> Case:
        return Case(
            "case x in\n(y) echo no ;;\nx) builtin printf yes ;;\nesac; f() {\n:\n}", 0, b"yes"
        )

    def _case_subshell(self) -> Case:
        code = self._code()
        return Case(f"( ( builtin cd /; exit {code} ) )", code)
