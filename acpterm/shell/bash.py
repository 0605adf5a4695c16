r"""The rc file, the typed line and the command file of bash (4.4 or newer; see `kind`).

Rules of the rc file, which must work whatever the user's commands change in the shell:

- It is sourced after the user's own rc file. While it is parsed, aliases are off. All builtins are
  called through ``\builtin``, so that functions of the same name have no effect.
- Marks (`tracker`) are written to ``/dev/tty``, and each report to a file of its own. The
  file is open only while the report is written. So ``exec >FILE`` and closed descriptors have no
  effect, and no child inherits a descriptor.
- Each call of an acpterm function is within ``{ …; } >/dev/null 2>&1``: this hides the traces of
  ``set -x`` and the output of a DEBUG trap. Each call is also followed by ``&& :``: this keeps
  ``set -e`` and an ERR trap from acting on the exit code that the function returns.
- ``__acpterm_precmd`` is the first entry of PROMPT_COMMAND. It does nothing if a function or a
  sourced file calls it, for example code that evaluates PROMPT_COMMAND. ``__acpterm_prompt`` is the
  last entry, since entries between them may set PS1.
- At the beginning and the end of each command, missing entries are installed again.

The typed line executes the command file by ``.``. The file consists of the command and a last line.
The last line saves the pipe status, because ``.`` overwrites it. The last line also makes ``.``
return 0. If ``.`` returned the exit code of the command, ``set -e`` would end the shell after the
command ``false && true``. Without ``.``, ``set -e`` does not end the shell after this command.
There is no last line in three cases:

- after an incomplete command: the shell could parse the line as a part of the command;
- after an empty command: ``.`` returns 0 for it anyway;
- with ``set -v``: the shell would print the line.

With ``set -x``, the shell prints a trace of ``.`` after the mark C of the typed line. This trace is
not output of the command. So, with ``set -x`` and without ``set -v``, the file begins with a call
that writes the mark C of the typed line again: the output begins after the last mark C.
"""

RC = r"""
\builtin shopt -q expand_aliases && __acpterm_aliases=1 || __acpterm_aliases=
\builtin shopt -u expand_aliases
\builtin unset HISTFILE
__acpterm_nonce=@nonce@ __acpterm_dir=@dir@
__acpterm_n=0 __acpterm_open=0 __acpterm_status= __acpterm_pipe=
__acpterm_hook='{ __acpterm_precmd "$?" && :; } >/dev/null 2>&1'
__acpterm_last='{ __acpterm_prompt "$?" && :; } >/dev/null 2>&1'
__acpterm_ps0='\e]133;C;aid=@nonce@;pid=$$;n=${__acpterm_n-}\a'
__acpterm_ps1='\[\e]133;B;aid=@nonce@;pid=$$;n=${__acpterm_n-}\a\]'

__acpterm_report() {
  # Arguments: event, status, pipe status
  \builtin local "IFS= " here=1
  [[ . -ef ${PWD-} ]] || here=0
  \builtin printf '\0%s %s %s %s %s %s %s %s %s\0' "$__acpterm_nonce" "$1" "$__acpterm_n" "$$" \
    "$2" "${3:--}" "$-" "$here" "${PWD-}" >|"$__acpterm_dir/$__acpterm_n.$1"
}

__acpterm_mark() {
  \builtin printf '\e]133;%s;aid=%s;pid=%s;n=%s\a' "$1" "$__acpterm_nonce" "$$" "$__acpterm_n" \
    >/dev/tty
}

__acpterm_install() {
  case ${BASH_VERSION-} in
  [1-4].* | 5.0*)
    if [[ ${PROMPT_COMMAND-} != "$__acpterm_hook"* ]]; then
      PROMPT_COMMAND=$__acpterm_hook${PROMPT_COMMAND:+$'\n'$PROMPT_COMMAND}$'\n'$__acpterm_last
    fi
    ;;
  *)
    if [[ ${PROMPT_COMMAND-} != "$__acpterm_hook" ||
      ${PROMPT_COMMAND[${#PROMPT_COMMAND[@]} - 1]-} != "$__acpterm_last" ]]; then
      \builtin local entry entries
      entries=()
      for entry in "${PROMPT_COMMAND[@]}"; do
        [[ -z $entry || $entry == "$__acpterm_hook" || $entry == "$__acpterm_last" ]] ||
          entries+=("$entry")
      done
      \builtin unset PROMPT_COMMAND
      PROMPT_COMMAND=("$__acpterm_hook" "${entries[@]}" "$__acpterm_last")
    fi
    ;;
  esac
  [[ ${PS0-} == *"$__acpterm_ps0" ]] || PS0=${PS0-}$__acpterm_ps0
}

__acpterm_begin() {
  # Arguments: number of the command, status before the command
  __acpterm_n=$1 __acpterm_open=1 __acpterm_status= __acpterm_pipe=
  __acpterm_install
  __acpterm_mark C
  \builtin return "$2"
}

__acpterm_end() {
  # Arguments: status and pipe status of the command
  \builtin local "IFS= "
  __acpterm_status=$1
  \builtin shift
  __acpterm_pipe="$*"
  __acpterm_pipe=${__acpterm_pipe// /,}
  __acpterm_install
  \builtin return 0
}

__acpterm_again() {
  \builtin return "${__acpterm_status:-$1}"
}

__acpterm_precmd() {
  if [[ ${#FUNCNAME[@]} == 1 ]]; then
    if [[ ${__acpterm_open-} == 1 ]]; then
      __acpterm_open=0
      __acpterm_status=${__acpterm_status:-$1}
      __acpterm_report end "$__acpterm_status" "$__acpterm_pipe"
      __acpterm_mark "D;$__acpterm_status"
    fi
    __acpterm_mark A
    __acpterm_install
  fi
  \builtin return "$1"
}

__acpterm_prompt() {
  if [[ ${#FUNCNAME[@]} == 1 ]]; then
    [[ ${PS1-} == *"$__acpterm_ps1" ]] || PS1=${PS1-}$__acpterm_ps1
    [[ ${HISTCONTROL-} == *ignorespace* || ${HISTCONTROL-} == *ignoreboth* ]] ||
      HISTCONTROL=ignorespace${HISTCONTROL:+:$HISTCONTROL}
  fi
  \builtin return "$1"
}

for __acpterm_key in emacs vi-insert vi-command; do
  \builtin bind -m "$__acpterm_key" '"\e[31415~": kill-whole-line'
done 2>/dev/null
\builtin bind -m vi-command '"\e[31416~": vi-insertion-mode' 2>/dev/null
\builtin bind -m vi-insert '"\e[31416~": beginning-of-line' 2>/dev/null
\builtin bind -m emacs '"\e[31416~": beginning-of-line' 2>/dev/null
for __acpterm_key in emacs vi-insert vi-command; do
  \builtin bind -m "$__acpterm_key" '"\e[31417~": "\e[31415~\e[31416~ \\command stty sane\C-m"'
done 2>/dev/null
\builtin unset __acpterm_key
__acpterm_install
{ __acpterm_report ready 0; } 2>/dev/null
[[ -z $__acpterm_aliases ]] || \builtin shopt -s expand_aliases
\builtin unset __acpterm_aliases
"""

USER_RC = r"""
[[ ! -r ~/.bashrc ]] || . ~/.bashrc
"""

#: Removes what the user has typed at the prompt, and leaves the command mode of vi.
CLEAR_LINE = b"\x1b[31415~\x1b[31416~"

# Follows a command in its file.
END = '\n\n{ __acpterm_end "$?" "${PIPESTATUS[@]}"; } >/dev/null 2>&1\n'
