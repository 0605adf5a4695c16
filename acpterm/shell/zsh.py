r"""The rc files, the typed line and the command file of zsh (5.3 or newer; see `kind`).

The rules are those of `bash`, with ``precmd_functions`` and ``preexec_functions`` in place of
PROMPT_COMMAND and PS0. Differences:

- zsh calls a function named ``precmd`` before those in ``precmd_functions``. If the user has one,
  it is moved into ``precmd_functions``, after acpterm's.
- The option PROMPT_SP prints a ``%`` after a last line without a newline, before any function is
  called. It is turned off.
- zsh reads its rc files from the directory ZDOTDIR. ZDOTDIR is the private directory only until
  acpterm's ``.zshrc`` is read, which restores the user's value.
"""

#: The name of the variable that passes the user's ZDOTDIR to the rc files; empty for none.
USER_ZDOTDIR = "ACPTERM_ZDOTDIR"

ENV_RC = r"""
if [[ -n ${ACPTERM_ZDOTDIR-} ]]; then ZDOTDIR=$ACPTERM_ZDOTDIR; else unset ZDOTDIR; fi
@user@
ACPTERM_ZDOTDIR=${ZDOTDIR-}
ZDOTDIR=@dir@
"""

USER_ENV_RC = r"[[ ! -r ${ZDOTDIR:-$HOME}/.zshenv ]] || . ${ZDOTDIR:-$HOME}/.zshenv"

RESTORE_ZDOTDIR = r"""
if [[ -n ${ACPTERM_ZDOTDIR-} ]]; then ZDOTDIR=$ACPTERM_ZDOTDIR; else unset ZDOTDIR; fi
unset ACPTERM_ZDOTDIR
"""

USER_RC = r"""
[[ ! -r ${ZDOTDIR:-$HOME}/.zshrc ]] || . ${ZDOTDIR:-$HOME}/.zshrc
"""

RC = r"""
[[ -o aliases ]] && __acpterm_aliases=1 || __acpterm_aliases=
\builtin unsetopt aliases
\builtin unset HISTFILE
\builtin typeset -g __acpterm_nonce=@nonce@ __acpterm_dir=@dir@
\builtin typeset -g __acpterm_n=0 __acpterm_open=0 __acpterm_status= __acpterm_pipe= __acpterm_ps1=

__acpterm_report() {
  # Arguments: event, status, pipe status, options
  \builtin emulate -L zsh
  \builtin local here=1
  [[ . -ef $PWD ]] || here=0
  \builtin printf '\0%s %s %s %s %s %s %s %s %s\0' "$__acpterm_nonce" "$1" "$__acpterm_n" "$$" \
    "$2" "${3:--}" "${4:--}" "$here" "$PWD" >|"$__acpterm_dir/$__acpterm_n.$1"
}

__acpterm_mark() {
  \builtin emulate -L zsh
  \builtin printf '\e]133;%s;aid=%s;pid=%s;n=%s\a' "$1" "$__acpterm_nonce" "$$" "$__acpterm_n" \
    >/dev/tty
}

__acpterm_hooks() {
  \builtin emulate -L zsh
  \builtin typeset -ga precmd_functions preexec_functions
  if (( $+functions[precmd] )); then
    functions[__acpterm_user_precmd]=$functions[precmd]
    \builtin unfunction precmd
    precmd_functions=(__acpterm_user_precmd ${precmd_functions:#__acpterm_user_precmd})
  fi
  if [[ ${precmd_functions[1]-} != __acpterm_precmd ||
        ${precmd_functions[-1]-} != __acpterm_prompt ]]; then
    precmd_functions=(
      __acpterm_precmd ${precmd_functions:#__acpterm_(precmd|prompt)} __acpterm_prompt
    )
  fi
  if [[ ${preexec_functions[-1]-} != __acpterm_preexec ]]; then
    preexec_functions=(${preexec_functions:#__acpterm_preexec} __acpterm_preexec)
  fi
}

__acpterm_install() {
  __acpterm_hooks
  \builtin unsetopt prompt_sp
  \builtin setopt hist_ignore_space
}

__acpterm_preexec() {
  { __acpterm_mark C; } >/dev/null 2>&1
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
  __acpterm_status=$1
  \builtin shift
  __acpterm_pipe=${(j:,:)@}
  __acpterm_install
  \builtin return 0
}

__acpterm_again() {
  \builtin return "${__acpterm_status:-$1}"
}

__acpterm_precmd() {
  {
    \builtin local now="$?"
    if [[ ${#funcstack[@]} == 1 ]]; then
      if [[ $__acpterm_open == 1 ]]; then
        __acpterm_open=0
        __acpterm_status=${__acpterm_status:-$now}
        __acpterm_report end "$__acpterm_status" "$__acpterm_pipe" "$-"
        __acpterm_mark "D;$__acpterm_status"
      fi
      __acpterm_mark A
      __acpterm_install
    fi
  } >/dev/null 2>&1
}

__acpterm_prompt() {
  {
    \builtin emulate -L zsh
    if [[ ${#funcstack} == 1 ]]; then
      [[ -z $__acpterm_ps1 ]] || PS1=${PS1//"$__acpterm_ps1"/}
      __acpterm_ps1=$'%{\e]133;B;aid=@nonce@;pid='$$';n='$__acpterm_n$'\a%}'
      PS1=$PS1$__acpterm_ps1
    fi
  } >/dev/null 2>&1
}

__acpterm_clear() {
  # Leave the secondary prompt, too.
  [[ $CONTEXT != cont ]] || zle .send-break
  BUFFER=
  zle -K main
}
__acpterm_repair() {
  BUFFER=' \command stty sane'
  zle .accept-line
}
\builtin zle -N __acpterm_clear
\builtin zle -N __acpterm_repair
for __acpterm_key in emacs viins vicmd; do
  \builtin bindkey -M $__acpterm_key '^[[31415~' __acpterm_clear
  \builtin bindkey -M $__acpterm_key '^[[31417~' __acpterm_repair
done
\builtin unset __acpterm_key
__acpterm_install
{ __acpterm_report ready 0; } 2>/dev/null
[[ -z $__acpterm_aliases ]] || \builtin setopt aliases
\builtin unset __acpterm_aliases
"""

#: Removes what the user has typed at the prompt.
CLEAR_LINE = b"\x1b[31415~"

# Follows a command in its file.
END = '\n\n{ __acpterm_end "$?" "${pipestatus[@]}"; } >/dev/null 2>&1\n'
