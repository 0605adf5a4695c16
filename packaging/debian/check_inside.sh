#!/bin/sh
# In a container: check the Debian packages. check_inside.sh PREVIOUS CURRENT: two versions.
#
# The daemon of alice starts by her enabled user socket, that of bob by hand, and that of carol by the
# system's template unit. Programs run on during the upgrade, and commands of agents run in sandboxes.
# Removal ends the daemons; after a purge, no file of the packages is left except the users' own files.
set -eu
previous=$1 current=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

say() { printf '\n## %s\n' "$*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# as USER COMMAND...: execute it in a login-like environment, without a login shell.
as() {
  name=$1
  shift
  uid=$(id -u "$name")
  setpriv --reuid="$uid" --regid="$uid" --init-groups --reset-env \
    env XDG_RUNTIME_DIR="/run/user/$uid" DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$uid/bus" "$@"
}
carol() { as carol env ACPTERM_SOCKET=/run/acpterm/carol/agent.sock "$@"; }
files() { find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /check \
  -o -path /var/cache -o -path /var/log -o -path /var/lib/apt \) -prune -o -print | sort; }
# install VERSION: install the packages of that version, with what they depend on.
install() {
  apt-get install --quiet=2 --yes --no-install-recommends \
    "/check/acpterm_$1-1_amd64.deb" "/check/acpterm-common_$1-1_all.deb" >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
  grep '^acpterm: ' /tmp/apt || true
}
# counted FILE: wait until the program has written one more line to FILE.
counted() {
  lines=$(wc -l <"$1")
  for _ in $(seq 100); do
    [ "$(wc -l <"$1")" -le "$lines" ] || return 0
    sleep 0.1
  done
  fail "no more lines in $1"
}
# sandboxed USER COMMAND...: run an agent's command in the sandbox of bubblewrap. COMMAND is the prefix that
# executes a command as USER. landlock is not tried, because systemd-nspawn refuses its system calls.
sandboxed() {
  home=/home/$1
  shift
  "$@" mkdir -p "$home/project" "$home/.ssh"
  "$@" sh -c 'echo secret >~/.ssh/id'
  for provider in bubblewrap; do
    "$@" acpterm provider set "$provider" >/dev/null
    "$@" acpterm restart >/dev/null
    "$@" sh -c "cd ~/project && /usr/lib/acpterm/bin/python3 /check/agent.py 'touch inside-$provider; touch ../outside; cat ../.ssh/id; acpterm ls; echo end'" \
      >/tmp/sandboxed 2>&1 || { cat /tmp/sandboxed; fail "$provider of $home"; }
    sed 's/^/  /' /tmp/sandboxed
    test -e "$home/project/inside-$provider" || fail "$provider of $home: cannot write to the project"
    ! test -e "$home/outside" || fail "$provider of $home: writes outside the project"
    ! grep -q -e '^secret' -e 'agent.py' /tmp/sandboxed || fail "$provider of $home: reads secrets, or reaches the daemon"
    "$@" acpterm audit --json | grep -q "\"event\":\"create\".*\"provider\":\"$provider\"" || fail "no create in the audit log of $home"
  done
  [ "$("$@" stat -c %a "$home/.local/state/acpterm/audit/audit.jsonl")" = 600 ] || fail "others can read the audit log of $home"
}
COUNT='i=0; while i=$((i+1)); do echo $i; sleep 0.05; done | tee ~/counted'

say "install acpterm $previous"
for user in alice bob carol; do
  useradd --create-home --shell /bin/sh "$user"
  loginctl enable-linger "$user"
done
files >/tmp/before
install "$previous"
as alice acpterm --version
[ "$(as alice acpterm --version | grep -c "version $previous ")" = 1 ] || fail "the version is not $previous"
test -e /usr/share/man/man1/acpterm-ls.1.gz || fail "no manual page"
as alice bash -c '. /usr/share/bash-completion/completions/acpterm && complete -p acpterm'

say "terminals: by the user's socket unit, without systemd, and by the system's template unit"
# Users who are logged in get the socket with their next login.
as alice systemctl --user daemon-reload
as alice systemctl --user is-enabled acpterm.socket
as alice systemctl --user start acpterm.socket
systemctl enable --quiet --now acpterm@carol.socket
as alice acpterm run -d --name count -- sh -c "$COUNT"
as bob env --unset=XDG_RUNTIME_DIR acpterm run -d --name count -- sh -c "$COUNT"
carol acpterm run -d --name count -- sh -c "$COUNT"
as alice systemctl --user is-active acpterm.service
systemctl is-active acpterm@carol.service
terminal=$(carol acpterm run -d -- sh -c 'tty; stty size; id -un; grep NoNewPrivs /proc/self/status')
[ "$(stat -c %U:%a /run/acpterm/carol)" = root:755 ] || fail "the directory of carol's sockets is not root's"
[ "$(carol acpterm stdio --socket /dev/null/agent.sock 2>&1 </dev/null | wc -l)" = 1 ] || fail "an error has not one line"
carol acpterm wait "$terminal" && carol acpterm logs "$terminal"
for user in alice bob carol; do
  counted "/home/$user/counted"
  pgrep -u "$user" -f 'echo \$i' | sort >"/tmp/pids-$user"
  test -s "/tmp/pids-$user" || fail "no program of $user"
done

say "upgrade to acpterm $current while they run"
install "$current" | tee /tmp/upgraded
[ "$(grep -c 'runs the new version' /tmp/upgraded)" = 3 ] || fail "not all three daemons run the new version"
as alice acpterm --version
for user in alice bob carol; do
  counted "/home/$user/counted"
  pgrep -u "$user" -f 'echo \$i' | sort | cmp - "/tmp/pids-$user" || fail "other programs run for $user"
done
as alice acpterm status
as bob env --unset=XDG_RUNTIME_DIR acpterm status
carol acpterm status
for status in "$(as alice acpterm status --json)" "$(carol acpterm status --json)"; do
  echo "$status" | grep -q '"takeovers": *1' || fail "not one take-over: $status"
  echo "$status" | grep -q "\"version\": *\"$current\"" || fail "the worker is not $current: $status"
done
as alice acpterm logs count | head -n 3
[ "$(as alice acpterm logs count | head -n 1)" = 1 ] || fail "the first line is lost"
as alice acpterm kill count

say "sandboxes: in the user unit, without systemd, and in the system's template unit"
# systemd-nspawn hides parts of /proc, and makes /proc/sys read-only, by mounts on them. The kernel then permits
# no new /proc in user namespaces. A machine without a container has no such mounts.
# Repeated, because some of these mounts hide others.
for _ in 1 2 3 4 5; do
  for mounted in $(awk '$5 ~ "^/proc/" { print $5 }' /proc/self/mountinfo | tac); do
    umount --lazy "$mounted" 2>/dev/null || true
  done
done
as alice acpterm policy check 'rm -r x' || [ $? = 3 ] || fail "acpterm policy check"
# Restart carol's unit, which has copied the old mounts at its start. First end the program in it.
carol acpterm kill count
systemctl restart acpterm@carol.service
sandboxed alice as alice
sandboxed bob as bob env --unset=XDG_RUNTIME_DIR
sandboxed carol carol
carol acpterm doctor | grep -E '^[a-z]+ +(provider|limits)' || true

say "remove, while an agent is connected and would start the daemon again"
as alice sh -c 'sleep 120 | acpterm stdio' >/dev/null 2>&1 &
as alice acpterm run -d -- sleep 1000
apt-get remove --quiet=2 --yes acpterm >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
grep '^acpterm: ' /tmp/apt
! pgrep -f 'echo \$i' || fail "programs are left"
sleep 1
! pgrep -f acpterm/keeper || fail "a keeper is left"
say "purge"
apt-get purge --quiet=2 --yes --auto-remove acpterm acpterm-common >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
systemctl daemon-reload
for user in alice bob carol; do
  test -s "/home/$user/.local/state/acpterm/audit/audit.jsonl" || fail "the audit log of $user is gone"
  test -s "/home/$user/.config/acpterm/config.toml" || fail "the settings of $user are gone"
done
rm -r /home/alice /home/bob /home/carol
files | comm -13 /tmp/before - | grep -v -e '/__pycache__' -e '^/var/lib/dpkg/info' >/tmp/left || true
files | grep -i acpterm >>/tmp/left || true
cat /tmp/left
find /run -name '*.sock' | grep acpterm >>/tmp/left || true
test ! -s /tmp/left || fail "these files are left"
echo "nothing is left"
