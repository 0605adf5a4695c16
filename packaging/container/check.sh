#!/bin/sh
# Build the container image and check it: alone, as the base of an agent's image, and beside an agent's
# container.
#
# check.sh PYZ: PYZ is the path of acpterm.pyz. The base image is a Debian bookworm, which mmdebstrap
# makes from this machine's package sources, so no image registry is needed. Needs root, and the Debian
# packages mmdebstrap, podman and crun.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ "${2-}" != inside ]; then
  for tool in mmdebstrap podman crun unshare; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install mmdebstrap podman crun"; exit 1; }
  done
  work=$(mktemp -d)
  # Containers, images and mounts are in namespaces that end with this process, so nothing is left behind.
  unshare --mount --pid --fork --kill-child --mount-proc sh "$here/check.sh" "$1" inside "$work" &
  namespace=$!
  trap 'kill -KILL "$namespace" 2>/dev/null || true; rmdir "$work"' EXIT
  trap 'exit 1' INT TERM HUP
  wait "$namespace"
  exit
fi

work=$3
mount -t tmpfs tmpfs "$work"
mkdir "$work/context" "$work/agent" "$work/upper" "$work/overlay"
cp "$1" "$work/context/acpterm.pyz"
packages=$(sh "$here/../apt_sources.sh")
TMPDIR=$work timeout 300 mmdebstrap --quiet --mode=root --variant=apt --include=python3 \
  bookworm "$work/base.tar" "$packages"

# podman also writes outside of --root and --runroot.
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t overlay -o "lowerdir=/var/lib,upperdir=$work/upper,workdir=$work/overlay" overlay /var/lib
# crun refuses a machine that has both versions of control groups.
mount -t cgroup2 cgroup2 /sys/fs/cgroup

engine() {
  timeout 60 unshare --net podman --root="$work/images" --runroot="$work/state" --storage-driver=overlay \
    --network-config-dir="$work/networks" --runtime=crun --cgroup-manager=cgroupfs --events-backend=file "$@"
}
build() { engine build --quiet --isolation=chroot --pull=never "$@" >/dev/null; }
# The default limits are above those of a machine where root lacks CAP_SYS_RESOURCE.
run() {
  engine run --cgroups=disabled --network=none --ulimit=nofile=1024:4096 --ulimit=nproc=4096:4096 \
    --read-only --cap-drop=all --security-opt=no-new-privileges "$@"
}
# within SECONDS COMMAND...: repeat the command until it succeeds.
within() {
  deadline=$(($(date +%s) + $1))
  shift
  until "$@" >"$work/out" 2>&1; do
    [ "$(date +%s)" -lt "$deadline" ] || { cat "$work/out"; echo "failed: $*"; exit 1; }
    sleep 0.1
  done
}
# expect TEXT COMMAND...: the command must print TEXT.
expect() {
  text=$1
  shift
  printed=$("$@" 2>&1) || true
  case $printed in
    *"$text"*) ;;
    *) printf 'expected: %s\nprinted: %s\nby: %s\n' "$text" "$printed" "$*"; exit 1 ;;
  esac
}
passed() { echo "passed: $*"; }

engine import --quiet "$work/base.tar" base >/dev/null
rm "$work/base.tar"
build --build-arg BASE=base --tag acpterm --file "$here/Containerfile" "$work/context"
cp "$here/../../docs/examples/agent.py" "$work/agent/"
cat >"$work/agent/Containerfile" <<'AGENT'
FROM acpterm
COPY agent.py /
ENTRYPOINT ["/opt/acpterm/bin/python3", "/agent.py"]
AGENT
build --tag agent "$work/agent"
passed "the image builds without network"

expect "alone" run --rm --hostname=alone agent 'cat /etc/hostname'
expect "alone" run --rm --hostname=alone --tmpfs=/run/acpterm:mode=1777 agent 'cat /etc/hostname'
passed "an agent's image starts its own daemon"

run --detach --name=daemon --hostname=daemon --volume=sockets:/run/acpterm acpterm >/dev/null
within 10 engine exec daemon acpterm status
beside() { run --volume=sockets:/run/acpterm "$@"; }
expect "daemon" beside --rm agent 'cat /etc/hostname'
expect "daemon" beside --rm agent --socket /run/acpterm/daemon/agent.sock 'cat /etc/hostname'
passed "an agent in another container uses the daemon, by acpterm stdio and by the socket"

beside --detach --name=agent agent 'trap "" TERM; while :; do sleep 100; done' >/dev/null
shows_terminal() { engine exec daemon acpterm ls | grep -q 'running .* sleep 100'; }
within 10 shows_terminal
expect "another pid namespace" beside --rm acpterm acpterm ls
expect "Permission denied" beside --rm --user=1001 agent --socket /run/acpterm/daemon/agent.sock true
passed "the user sees its terminal, other containers and other users do not"

expect "dangerous" engine exec daemon acpterm policy check 'rm -r x'
expect "local " engine exec daemon acpterm provider list
expect "is dangerous" beside --rm agent 'rm -r x'
# The log is written soon after the answer.
audits() { engine exec daemon acpterm audit | grep "$1" >/dev/null; }
within 10 audits " create .*cat /etc/hostname"
within 10 audits " decision .*deny"
passed "commands of agents are judged, and the audit log has them"

orphan=$(engine exec daemon sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!')
expect "PPid:	1" engine exec daemon grep PPid "/proc/$orphan/status"
engine exec daemon sh -c "kill $orphan"
within 10 engine exec daemon test ! -e "/proc/$orphan"
passed "orphans are reaped"

started=$(date +%s)
engine stop --time=10 daemon >/dev/null
took=$(($(date +%s) - started))
expect "0" engine inspect --format='{{.State.ExitCode}}' daemon
[ "$took" -lt 5 ] || { echo "podman stop took $took s"; exit 1; }
engine wait agent >/dev/null
# Whether a pending request gets a response before the connection ends depends on the time.
expect "is gone, and the terminals with it: it has ended" engine logs agent
passed "podman stop ends the daemon and a program that ignores SIGTERM, in $took s, with status 0"

engine start daemon >/dev/null
within 10 engine exec daemon acpterm status
engine kill daemon >/dev/null
within 10 engine start daemon
within 10 engine exec daemon acpterm status
passed "the daemon starts again on the same volume, also after it was killed"
