#!/bin/sh
exec /usr/lib/acpterm/bin/python3 -P -m acpterm "$@"
