"""The scripts that run the program of a terminal on the other host: `wait.pl` and `wait.sh`.

The arguments of each are a directory and the id of a job in it. The script records its own pid,
waits until the job has arrived, and removes the file of the job. It then starts the program, waits
for it, and records how the program ended. `wait.sh` is for a host without perl. It cannot tell an
exit with code 137 from an end by SIGKILL, and sets only variables whose names a shell accepts.
"""

from typing import Final

WAIT_PL: Final = r"""
use strict;
my ($d, $id) = @ARGV;
my $j = "$d/$id";
my $start = '';
if (open my $stat, '<', '/proc/self/stat') {
  $start = (split ' ', <$stat> =~ s/.*\) //sr)[19];
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
