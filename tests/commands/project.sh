# Makes the files that each line of lines.toml finds: a home, and a project with a git repository.
set -eu
umask 022
mkdir home work
ln -s work link
ln -s work/src deep
cat >home/.bashrc <<'END'
export FROM_BASHRC=yes
PS1='> '
alias ll='ls -l'
END
printf 'export FROM_PROFILE=yes\nPS1="> "\n' >home/.profile
cat >home/.gitconfig <<'END'
[user]
	name = Ada
	email = ada@example.org
[init]
	defaultBranch = main
[advice]
	detachedHead = false
[gc]
	auto = 0
[maintenance]
	auto = false
END
cd work
mkdir -p src tests 'sub dir/deep' build
cat >README.md <<'END'
# Project

A small project. TODO: describe it.
END
cat >src/main.py <<'END'
import sys

from util import add


def main():
    # TODO: read the numbers from a file
    print(add(*map(int, sys.argv[1:])))


if __name__ == "__main__":
    main()
END
cat >src/util.py <<'END'
def add(a, b):
    return a + b
END
cat >tests/test_util.py <<'END'
import unittest

from util import add


class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_wrong(self):
        self.assertEqual(add(1, 2), 4)
END
cat >Makefile <<'END'
all: build/out.txt

build/out.txt: names.txt
	sort $< >$@

fail:
	@echo about to fail
	exit 3

.PHONY: all fail
END
printf '%s\n' '{"name": "project", "version": "1.2.3", "scripts": {"test": "echo tested", "fail": "exit 4"}}' >package.json
printf '%s\n' name,count apple,3 pear,5 plum,2 >data.csv
printf '%s\n' Zoe adam Bob Eve bob >names.txt
printf 'one\r\ntwo\r\n' >dos.txt
printf '\000\001\377binary\n' >binary.bin
echo text >'a file.txt'
echo größer >naïve.txt
echo hidden >.hidden
printf '#!/bin/bash\necho "script $# $1"\nexit 7\n' >script.sh
printf '#!/bin/sh\nread -r answer\necho "got $answer"\n' >ask.sh
printf '#!/no/such/interpreter\n' >broken.sh
echo 'echo never' >plain.sh
chmod 755 script.sh ask.sh broken.sh
printf 'X=from_env\nsourced() { echo "sourced $1"; }\nexport Y=also\n' >env.sh
printf 'BUILD_MODE=release\nAPI_URL=http://localhost\n' >.env
i=0
while [ $i -lt 300 ]; do
  i=$((i + 1))
  echo "2026-01-01 line $i level=$((i % 3)) request took $((i * 7 % 100)) ms"
done >server.log
echo deep >'sub dir/deep/file.txt'
cat >serve.py <<'END'
import http.server
import sys

http.server.SimpleHTTPRequestHandler.log_message = lambda *_: None
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
print("serving", flush=True)
server.serve_forever()
END
cat >daemon.py <<'END'
import os
import sys

if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
for fd in range(3):
    os.dup2(null, fd)
os.execvp(sys.argv[1], sys.argv[1:])
END
echo '/build/' >.gitignore
# Without hooks, and packed: few files to copy.
git init -q --template=
git add .
git commit -qm 'Start the project'
echo 'More text.' >>README.md
git commit -qam 'Extend README'
git branch feature
sed -i 's/a small project/a tiny project/I' README.md
git commit -qam 'Call it tiny'
git checkout -q feature
echo 'def sub(a, b):
    return a - b' >>src/util.py
git commit -qam 'Add sub'
git checkout -q main
git gc -q
