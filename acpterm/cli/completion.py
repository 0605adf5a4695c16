"""`acpterm completion`: print a shell completion script."""

import click
from click.shell_completion import get_completion_class

from acpterm.cli._output import echo_once


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands, options and the daemon's terminals.

    \b
    bash, in ~/.bashrc:                  eval "$(acpterm completion bash)"
    zsh, in ~/.zshrc after compinit:     eval "$(acpterm completion zsh)"
    fish, in ~/.config/fish/config.fish: acpterm completion fish | source

    Completion does not start a daemon that is not running.
    """  # noqa: D301  click leaves a paragraph after this character unwrapped
    echo_once(completion_script(ctx.find_root(), shell))


def completion_script(ctx: click.Context, shell: str) -> str:
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # noqa: S101  click supports all three shells
    return shell_class(ctx.command, {}, "acpterm", "_ACPTERM_COMPLETE").source().rstrip("\n")
