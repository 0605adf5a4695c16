#!/bin/sh
# Print the machine code of the leader for a machine, in base64: assemble.sh x86_64
# Needs the GNU assembler for that machine (Debian: binutils-x86-64-linux-gnu, binutils-aarch64-linux-gnu).
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1-linux-gnu-as" -o "$work/object" "$here/$1.S"
"$1-linux-gnu-objcopy" -O binary -j .text "$work/object" "$work/code"
base64 -w 96 "$work/code"
