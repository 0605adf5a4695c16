"""`acpterm completion`: prints what makes a shell complete acpterm's commands."""

import click
from click.shell_completion import get_completion_class

from acpterm.cli._output import echo_once


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, flags, and the terminals of the daemon.

    \b
    bash, in ~/.bashrc:                  eval "$(acpterm completion bash)"
    zsh, in ~/.zshrc after compinit:     eval "$(acpterm completion zsh)"
    fish, in ~/.config/fish/config.fish: acpterm completion fish | source

    A daemon that is not running is not started for it.
    """  # noqa: D301  click wants that very character before lines that stay as they are
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101  click has these three
    script = found(ctx.find_root().command, {}, "acpterm", "_ACPTERM_COMPLETE").source()
    echo_once(script.rstrip("\n"))
