"""The scripts that run on the other host.

The login shell there may be any shell: it gets only command lines of plain words to execute.

`control` serves the control channel (`ssh.control`). `/bin/sh` reads this script from its stdin,
in a session without a PTY. The script creates a directory of mode 0700 in /tmp for this daemon,
writes the other scripts into it, and then reads requests.

The terminal of a program runs `wait.pl`, or `wait.sh` if there is no perl. That script reads the
program's *job* (`ssh.job`) from a file in the directory. The job has the working directory, the
environment and the arguments. So these are in no command line, where other users could read them.
The job may arrive after the terminal's session has begun, so that the creation of a terminal need
not wait for a reply.

The request `keeper` starts acpterm's daemon on the other host, and replies with its status. In a
terminal of that daemon, the script `kept` first sets the umask and the environment variables of a
login, since those of the daemon may differ. It then runs a job, whose own variables are added.

The processes of a program are those of its session, those that have the job's id in their
environment, and all their descendants. The script `end` ends them. It runs in four cases: on
request; when the PTY hangs up, because the connection is lost or ssh was killed; when the daemon on
this machine ends (`quit all`); and when the daemon on this machine has sent no request `beat` to
`control` for too long. In the last case, the script `watch` runs `end`, removes the directory and
ends `control`. The next program gets a new directory and a new `control`.

The arguments of `wait.pl` and `wait.sh` are a directory and the id of a job in it. The script
records its own pid, waits for the file of the job and removes it, starts the program, and records
how the program ended. `wait.sh` is for a host without perl. It cannot tell an exit with code 137
from an end by SIGKILL, and sets only variables whose names a shell accepts.
"""

from typing import Final

JOB_VARIABLE: Final = "ACPTERM_JOB"
"""The environment variable that has the id of the job, in all processes of its program."""
_REMOVED: Final = "acpterm: the connection to this host was replaced"
UNLESS_REMOVED: Final = f'if test -r "$2"; then exec "$@"; fi; echo "{_REMOVED}" >&2; exit 255'
"""Shell text that executes its arguments if the script that its second argument names exists.

Otherwise it exits with 255. Without this check, an interpreter whose script is missing would exit
with a code that a program could have exited with. The text has no single quote, so that it can be
quoted in the same way for every login shell.
"""

_END_HEAD: Final = r"""
d=$1 id=$2 grace=$3 seq=$4
trap '' HUP INT TERM
: >"$d/$id.end"
leader= start= known=
[ -r "$d/$id.pid" ] && read -r leader start <"$d/$id.pid"
"""

# Ends the processes of a program. The variables id, grace (in tenths of a second), leader (the pid
# of the session's leader, or empty), start (the start time of the leader) and seq must be set.
END: Final = r"""
scan() {
  if [ -r /proc/self/stat ]; then
    marked=$(grep -l "VARIABLE=$id" /proc/[0-9]*/environ 2>/dev/null)
    known=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v leader="$leader" -v start="$start" \
      -v marked="$marked" -v known="$known" -v self=$$ '
      { pid = $1; sub(/^.*\) /, ""); split($0, f, " ")
        if (f[1] == "Z" || f[1] == "X") next
        parent[pid] = f[2]; session[pid] = f[4]; started[pid] = f[20] }
      function close_over(set,    changed, p) {
        do { changed = 0
          for (p in parent) if (!(p in set) && (parent[p] in set)) { set[p] = 1; changed = 1 }
        } while (changed) }
      END {
        n = split(marked, m, "\n")
        for (i = 1; i <= n; i++) { split(m[i], part, "/")
          if (part[3] in parent) ours[part[3]] = 1 }
        n = split(known, k, " ")
        for (i = 1; i <= n; i++) { split(k[i], part, ":")
          if (started[part[1]] == part[2]) ours[part[1]] = 1 }
        if (leader != "" && (!(leader in parent) || started[leader] == start))
          for (p in session) if (session[p] == leader) ours[p] = 1
        close_over(ours); own[self] = 1; close_over(own)
        for (p in ours) if (!(p in own) && p != leader) printf "%s:%s ", p, started[p] }')
  else
    known=$(ps -A -o pid= -o ppid= | awk -v leader="$leader" -v self=$$ '
      { parent[$1] = $2 }
      END {
        if (leader in parent) ours[leader] = 1
        own[self] = 1
        do { changed = 0
          for (p in parent) {
            if (!(p in ours) && (parent[p] in ours)) { ours[p] = 1; changed = 1 }
            if (!(p in own) && (parent[p] in own)) { own[p] = 1; changed = 1 } }
        } while (changed)
        for (p in ours) if (!(p in own) && p != leader) printf "%s:0 ", p }')
  fi
  [ -n "$known" ]
}
signal() { for p in $known; do kill -s "$1" "${p%%:*}" 2>/dev/null; done; }
nap() { sleep "0.$1" 2>/dev/null || sleep 1; }
how=ended
if scan; then
  signal TERM
  signal CONT
  nap 02
  while scan && [ "$grace" -gt 0 ]; do
    grace=$((grace - 1))
    nap 1
  done
  left=50
  while [ -n "$known" ] && [ "$left" -gt 0 ]; do
    # A shell would exit by itself when its command is killed first.
    signal STOP
    signal KILL
    left=$((left - 1))
    nap 05
    scan
  done
  [ -z "$known" ] || how=left
fi
echo "acpterm $seq $how"
""".replace("VARIABLE", JOB_VARIABLE)

_END_ALL: Final = r"""
d=$1
for p in "$d"/*.pid; do
  id=${p##*/}
  [ ! -e "$p" ] || [ "$id" = watch.pid ] || /bin/sh "$d/end" "$d" "${id%.pid}" 20 0 &
done
wait
"""

_WATCH: Final = r"""
d=$1 limit=$2 quiet=0 last=
trap '' HUP
echo $$ >"$d/watch.pid"
while sleep 5; do
  [ -d "$d" ] || exit 0
  read -r now <"$d/alive"
  if [ "$now" != "$last" ]; then
    last=$now quiet=0
    continue
  fi
  quiet=$((quiet + 5))
  [ "$quiet" -lt "$limit" ] && continue
  /bin/sh "$d/end_all" "$d"
  controls=
  for p in "$d"/control.*; do
    [ -e "$p" ] && controls="$controls ${p##*.}"
  done
  rm -rf "$d"
  [ -z "$controls" ] || kill $controls
  exit 0
done
"""

_CONTROL: Final = r"""
d=/tmp/NAME
mask=$(umask)
umask 077
mkdir "$d" 2>/dev/null
if [ ! -d "$d" ] || [ -L "$d" ] || [ ! -O "$d" ]; then
  echo "acpterm 0 error $d: cannot be created"
  exit 1
fi
FILES
echo start-BEAT >"$d/alive"
pid=
[ -r "$d/watch.pid" ] && read -r pid <"$d/watch.pid"
if [ -z "$pid" ] || ! kill -0 "$pid" 2>/dev/null; then
  /bin/sh "$d/watch" "$d" LIMIT </dev/null >/dev/null 2>&1 &
fi
serve() {
  while IFS=' ' read -r verb seq id more; do
    [ -d "$d" ] || exit 0
    case $verb in
      beat) echo "$id" >"$d/alive" ;;
      job)
        how=stored
        while [ "$more" -gt 0 ]; do
          more=$((more - 1))
          IFS= read -r line
          printf '%s\n' "$line" >>"$d/$id" || how=full
        done
        [ "$how" = stored ] && : >"$d/$id.job"
        ;;
      end) /bin/sh "$d/end" "$d" "$id" "$more" "$seq" </dev/null & ;;
      signal)
        how=no leader=
        [ -r "$d/$id.pid" ] && read -r leader start <"$d/$id.pid"
        if [ -n "$leader" ]; then
          if [ -r "/proc/$leader/stat" ]; then
            read -r stat <"/proc/$leader/stat"
            set -- ${stat##*") "}
            group=$6
          else
            group=$(ps -o tpgid= -p "$leader" | tr -d ' ')
          fi
          [ "${group:-0}" -gt 0 ] && kill -s "$more" -- "-$group" 2>/dev/null && how=yes
        fi
        echo "acpterm $seq $how"
        ;;
      exit)
        how=gone leader=
        if [ -r "$d/$id.exit" ]; then
          read -r how <"$d/$id.exit"
          case $how in *signal\ *) how="$how $(kill -l "${how##* }" 2>/dev/null)" ;; esac
        elif [ -r "$d/$id.pid" ] && read -r leader start <"$d/$id.pid"; then
          kill -0 "$leader" 2>/dev/null && how=running
        else
          how=never
        fi
        echo "acpterm $seq $how"
        ;;
      forget) rm -f "$d/$id" "$d/$id".* ;;
      keeper)
        (
          umask "$mask"
          PATH=$PATH:$HOME/.local/bin
          how="$more: command not found"
          command -v "$more" >/dev/null 2>&1 &&
            how=$("$more" status --start --json 2>&1 | tail -c 4000 | tr '\n' ' ')
          echo "acpterm $seq $how"
        ) </dev/null &
        ;;
      quit)
        gone=$d-$$
        mv "$d" "$gone" || gone=$d
        [ "$id" = all ] && /bin/sh "$gone/end_all" "$gone" </dev/null >/dev/null 2>&1
        rm -rf "$gone"
        exit 0
        ;;
    esac
  done
  rm -f "$d/control.$$"
  exit 0
}
start="/bin/sh $d/wait.sh $d"
command -v perl >/dev/null 2>&1 && start="perl $d/wait.pl $d"
{
  echo "umask $mask"
  echo '_t=$TERM'
  export -p
  echo 'TERM=$_t; export TERM; unset _t'
  echo "exec $start \"\$1\""
} >"$d/kept.tmp"
mv "$d/kept.tmp" "$d/kept"
: >"$d/control.$$"
echo "acpterm 0 ready $start"
serve
"""

WAIT_PL: Final = r"""
use strict;
my ($d, $id) = @ARGV;
my $j = "$d/$id";
my ($session, $start) = (0, '');
if (open my $stat, '<', '/proc/self/stat') {
  ($session, $start) = (split ' ', <$stat> =~ s/.*\) //sr)[3, 19];
}
# The code of die is that of the last error, which the program could have exited with, too.
my $fail = sub { print STDERR "acpterm: $_[1]\n"; exit $_[0] };
open my $pid, '>', "$j.pid" or $fail->(255, 'the connection to this host was replaced');
print $pid "$$ $start\n";
close $pid;
exit 255 if -e "$j.end";
for (my $tries = 0; !-e "$j.job"; $tries++) {
  if ($tries > 2000) {
    unlink "$j.pid";
    $fail->(255, 'the command did not arrive: is /tmp full?');
  }
  select undef, undef, undef, 0.005;
}
open my $f, '<', $j or $fail->(255, "$j: $!");
my @lines = map { chomp; s/\\0([0-7]{3})/chr oct $1/ge; $_ } <$f>;
close $f;
unlink $j, "$j.job";
my $cwd = shift @lines;
my $umask = shift @lines;
my $count = shift @lines;
my %env = map { my ($name, $value) = split /=/, $_, 2; ($name, $value) } splice @lines, 0, $count;
my @commands;
while (@lines) {
  $count = shift @lines;
  push @commands, [splice @lines, 0, $count];
}
my $lost = 0;
my @signals = qw(INT QUIT TERM TSTP TTIN TTOU USR1 USR2 ALRM PIPE);
$SIG{$_} = sub { } for @signals;
$SIG{HUP} = sub {
  # With a terminal, it is no hang-up, but a signal that was requested for the program.
  return if -t STDIN or $lost++;
  my $end = fork;
  return if !defined $end or $end;
  open STDIN, '<', '/dev/null';
  open STDOUT, '>', '/dev/null';
  open STDERR, '>', '/dev/null';
  exec '/bin/sh', "$d/end", $d, $id, 20, 0;
};
my $pid = fork;
$fail->(255, "no process can be started: $!") if !defined $pid;
if (!$pid) {
  $SIG{$_} = 'DEFAULT' for @signals, 'HUP';
  $ENV{$_} = $env{$_} for keys %env;
  umask(umask() | oct $umask);
  chdir $cwd or $fail->(126, "$cwd: cannot be the working directory: $!");
  my ($code, $why);
  for my $argv (@commands) {
    no warnings;
    exec { $argv->[0] } @$argv;
    my ($missing, $error) = ($!{ENOENT}, "$!");
    ($code, $why) = (127, "$argv->[0]: command not found") if !$why;
    $fail->(126, "$argv->[0]: cannot be run: $error") if !$missing;
  }
  $fail->($code, $why);
}
waitpid $pid, 0;
my $s = $?;
my $how = $s & 127 ? 'signal ' . ($s & 127) : 'code ' . ($s >> 8);
if (open my $o, '>', "$j.exit.tmp") {
  print $o $lost ? "lost $how\n" : "$how\n";
  close $o;
  rename "$j.exit.tmp", "$j.exit";
}
# The end of this process, which leads the session, hangs up the foreground group. That would end
# what the program has left in its background, so a group without processes becomes the foreground.
# Where there is no /proc, the release would not find that background.
if ($session == $$) {
  $SIG{HUP} = 'DEFAULT';
  $SIG{TTOU} = 'IGNORE';
  if (my $other = fork) {
    setpgrp $other, $other;
    ioctl STDIN, 0x5410, pack 'i', $other;  # TIOCSPGRP
    kill 'KILL', $other;
    waitpid $other, 0;
  } elsif (defined $other) {
    sleep 5;
    exit;
  }
}
exit($s & 127 ? 255 : $s >> 8);
"""

WAIT_SH: Final = r"""
_a_d=$1 _a_id=$2 _a_start= _a_n=0
if [ -r "/proc/$$/stat" ]; then
  read -r _a_v <"/proc/$$/stat"
  set -- ${_a_v##*") "}
  _a_start=${20}
fi
echo "$$ $_a_start" >"$_a_d/$_a_id.pid" || exit 255
[ -e "$_a_d/$_a_id.end" ] && exit 255
until [ -e "$_a_d/$_a_id.job" ]; do
  if [ "$_a_n" -gt 10 ]; then
    rm -f "$_a_d/$_a_id.pid"
    echo "acpterm: the command did not arrive: is /tmp full?" >&2
    exit 255
  fi
  sleep 0.1 2>/dev/null || sleep 1
  _a_n=$((_a_n + 1))
done
exec 3<"$_a_d/$_a_id"
rm -f "$_a_d/$_a_id" "$_a_d/$_a_id.job"
_a_next() { IFS= read -r _a_v <&3 || return 1; _a_v=$(printf '%bx' "$_a_v"); _a_v=${_a_v%x}; }
_a_next; _a_cwd=$_a_v
_a_next; umask "$(printf '%04o' "$(($(umask) | ${_a_v:-0}))")"
_a_next; _a_n=$_a_v
while [ "$_a_n" -gt 0 ]; do
  _a_n=$((_a_n - 1))
  _a_next
  case ${_a_v%%=*} in
    '' | [0-9]* | *[!A-Za-z0-9_]* | _a_*) ;;
    *) (export "$_a_v") 2>/dev/null && export "$_a_v" ;;
  esac
done
while _a_next; do
  _a_n=$_a_v
  set --
  while [ "$_a_n" -gt 0 ]; do
    _a_n=$((_a_n - 1))
    _a_next
    set -- "$@" "$_a_v"
  done
  : "${_a_first=$1}"
  command -v -- "$1" >/dev/null 2>&1 && break
  set --
done
exec 3<&-
trap : HUP INT QUIT TERM TSTP TTIN TTOU USR1 USR2 ALRM PIPE
if ! cd -- "$_a_cwd" 2>/dev/null; then
  echo "acpterm: $_a_cwd: cannot be the working directory" >&2
  _a_s=126
elif [ $# = 0 ]; then
  echo "acpterm: $_a_first: command not found" >&2
  _a_s=127
else
  "$@"
  _a_s=$?
fi
_a_how="code $_a_s"
if [ "$_a_s" -gt 128 ] && kill -l "$_a_s" >/dev/null 2>&1; then
  _a_how="signal $((_a_s - 128))" _a_s=255
fi
# After a hang-up, stdin is no terminal any more.
[ -t 0 ] || _a_how="lost $_a_how"
echo "$_a_how" >"$_a_d/$_a_id.exit"
exit "$_a_s"
"""

_FILES: Final = {
    "wait.pl": WAIT_PL,
    "wait.sh": WAIT_SH,
    "end": _END_HEAD.strip() + END,
    "end_all": _END_ALL,
    "watch": _WATCH,
}


def control(name: str, limit_s: int, beat: str) -> bytes:
    """Return the script `control`, which uses the directory `name` in /tmp."""
    # Without a beat for `limit_s`, it ends all programs. A beat counts only if it differs from the
    # one before, which may be of an earlier script: so each call needs another first `beat`.
    files = "".join(
        f"cat >\"$d/{file}.tmp\" <<'ACPTERM'\n{text.strip()}\nACPTERM\n"
        f'mv "$d/{file}.tmp" "$d/{file}"\n'
        for file, text in _FILES.items()
    )
    text = _CONTROL.replace("NAME", name).replace("LIMIT", str(limit_s)).replace("BEAT", beat)
    return text.replace("FILES\n", files).lstrip().encode()
