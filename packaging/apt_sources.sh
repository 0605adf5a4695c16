#!/bin/sh
# Print the file with this machine's package sources of Debian bookworm, for mmdebstrap.
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
  if grep -Eqs '^(deb |Suites:).*bookworm' "$file"; then
    echo "$file"
    exit
  fi
done
echo "no package sources of Debian bookworm in /etc/apt: clean roots cannot be made" >&2
exit 1
