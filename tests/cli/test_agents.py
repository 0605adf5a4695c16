"""Agents by name: the registry, installing binaries, and `--agent` of `prompt` and `proxy`."""

import hashlib
import io
import json
import platform
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from acpterm.agents import acp_registry, installation
from tests.support.commands import command_environment, run_here
from tests.support.editor import AGENT
from tests.support.starting import ACPTERM

HERE = f"{sys.platform}-{platform.machine()}"
SCRIPT = '#!/bin/sh\nexec {} "$@"\n'.format(" ".join(AGENT))


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1:1" + self.path)
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *words):
        pass


class Place:
    """A registry, at an address of this machine, and a user's directories."""

    def __init__(self, tmp_path, server):
        self.served, self.server = tmp_path / "served", server
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.file = self.served / "registry.json"
        self.socket = str(tmp_path / "d" / "agent.sock")
        self.state = tmp_path / "d" / "state" / "acpterm" / "agents"
        self.variables = {
            "ACPTERM_REGISTRY": str(self.file),
            "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        }
        self.bin = tmp_path / "bin"
        for directory in (self.served, self.bin, tmp_path / "d"):
            directory.mkdir()

    def write(self, **agents):
        entries = [
            {"id": id_.replace("_", "-"), "name": id_, "version": "1.2.3", "distribution": how}
            for id_, how in agents.items()
        ]
        self.file.write_text(json.dumps({"version": "1.0.0", "agents": entries, "extensions": []}))

    def binary(self, name, data, **fields):
        (self.served / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        one = {"archive": f"{self.address}/{name}", "cmd": "./tool", "sha256": digest, **fields}
        return {"binary": {HERE: one}}

    def environment(self, **variables):
        return command_environment(self.socket, **{**self.variables, **variables})

    def run(self, *words, **variables):
        return run_here(list(words), self.environment(**variables))

    def listed(self, **variables):
        done = self.run("agents", "--json", **variables)
        assert (done.status, done.err) == (0, "")
        return {one["id"]: one for one in json.loads(done.out)}

    def prompt(self, *words):
        return subprocess.run(
            [*ACPTERM, "prompt", json.dumps([{"do": "say", "text": "done"}]), "--embedded", *words],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def place(tmp_path):
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.paths = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Place(tmp_path, server)
        finally:
            server.shutdown()
            thread.join()


def tar(*members, suffix="gz"):
    """Return an archive of members: `(name, data)`, or a `TarInfo`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{suffix}") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return file.getvalue()


def zipped(*members, mode=0o644):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return file.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def tool(path, text=SCRIPT):
    path.write_text(text)
    path.chmod(0o755)


# The registry


def test_list_shows_what_is_installed_and_what_could_be(place):
    tool(place.bin / "npx")
    tool(place.bin / "here")
    place.write(
        local={"local": {"cmd": "here", "args": ["acp"]}},
        gone={"local": {"cmd": "not-here"}},
        node={"npx": {"package": "@a/b@1", "args": ["--acp"]}},
        python={"uvx": {"package": "p"}},
        archive=place.binary("tool.tgz", tar(("tool", SCRIPT.encode()))),
        elsewhere={"binary": {"plan9-mips": {"archive": "https://x/y", "cmd": "z"}}},
        unverified={"binary": {HERE: {"archive": "https://x/y", "cmd": "z"}}},
        strange={"floppy": {}},
        both={**place.binary("tool.tgz", b""), "npx": {"package": "p"}},
    )
    found = place.listed()
    assert {name: one["whyNot"] for name, one in found.items()} == {
        "local": None,
        "gone": "there is no program 'not-here'",
        "node": None,
        "python": "uvx (of uv) is not on the PATH",
        "archive": "acpterm agents --install archive installs it",
        "elsewhere": f"the registry has no binary for {HERE}, only for plan9-mips",
        "unverified": f"distribution.binary.{HERE} has no sha256: acpterm does not trust it",
        "strange": "the registry has no way to start it that acpterm knows",
        "both": None,
    }
    assert [name for name, one in found.items() if one["canInstall"]] == ["archive", "both"]
    assert found["local"]["command"] == ["here", "acp"]
    assert found["node"]["command"] == ["npx", "-y", "@a/b@1", "--acp"]
    table = place.run("agents").out.splitlines()
    assert table[0].split() == ["ID", "VERSION", "NAME", "STATE"]
    assert table[1].split() == ["local", "1.2.3", "local", "installed"]
    assert table[3].endswith("started by npx")
    assert table[9].endswith("started by npx, can be installed")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "Expected `object`, got `array`"),
        ('{"agents": [{"id": "a"}]}', "missing required field `name` - at `$.agents[0]`"),
        ("{", "Input data was truncated"),
        (
            '{"agents":[{"id":"a","name":"a","version":"1","distribution":{"npx":{"package":5}}}]}',
            "Expected `str`, got `int` - at `$.agents[0].distribution.npx.package`",
        ),
        (
            '{"agents": [{"id": "../a", "name": "a", "version": "1", "distribution": {}}]}',
            "matching regex '^[a-z][a-z0-9-]*\\\\Z' - at `$.agents[0].id`",
        ),
    ],
)
def test_malformed_registry_is_an_error_that_names_file_and_member(place, text, expected):
    place.file.write_text(text)
    done = place.run("agents")
    assert (done.status, done.out) == (1, "")
    assert f"the registry {place.file} is malformed: " in done.err
    assert expected in done.err


def test_registry_that_is_missing_or_too_large_is_an_error(place, monkeypatch):
    done = place.run("agents")
    assert (done.status, done.err) == (1, f"acpterm: the registry {place.file} does not exist\n")
    monkeypatch.setattr(acp_registry, "REGISTRY_BYTES_MAX", 100)
    place.file.write_text(" " * 101)
    assert "is larger than 100 bytes" in place.run("agents").err
    environment = command_environment(place.socket)
    assert "there is no registry of agents: set registry" in run_here(["agents"], environment).err


def test_registry_at_an_address_is_fetched_only_when_asked_and_kept(place):
    place.write(one={"npx": {"package": "p"}})
    address = {"ACPTERM_REGISTRY": f"{place.address}/registry.json"}
    done = place.run("agents", **address)
    assert done.status == 1
    assert "was not fetched yet: acpterm agents --fetch fetches it" in done.err
    assert place.run("prompt", "x", "--agent", "one", **address).status == 1
    assert place.server.paths == []
    assert place.run("agents", "--fetch", **address).status == 0
    assert list(place.listed(**address)) == ["one"]
    # A registry that cannot be read does not replace the one that is there.
    place.file.write_text("{")
    failed = place.run("agents", "--fetch", **address)
    assert failed.status == 1
    assert f"the registry {address['ACPTERM_REGISTRY']} is malformed" in failed.err
    assert list(place.listed(**address)) == ["one"]
    assert place.server.paths == ["/registry.json"] * 2
    # The copy belongs to its address.
    other = place.run("agents", ACPTERM_REGISTRY=f"{place.address}/other.json")
    assert "was not fetched yet" in other.err
    missing = place.run("agents", "--fetch", ACPTERM_REGISTRY=f"{place.address}/other.json")
    assert "other.json cannot be fetched: HTTP Error 404" in missing.err
    assert [path.name for path in place.state.iterdir() if path.name.startswith(".")] == []
    assert "is no address" in place.run("agents", "--fetch").err


@pytest.mark.parametrize(
    "value", ["registry.json", "http://example.org/r", "ftp://x/y", "https://"]
)
def test_setting_must_be_an_absolute_path_or_an_address_that_others_cannot_change(place, value):
    done = place.run("agents", ACPTERM_REGISTRY=value)
    assert done.status == 1
    assert f"ACPTERM_REGISTRY: registry = {value!r}: is n" in done.err


# Binaries


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.tar.gz", tar),
        ("a.tbz2", partial(tar, suffix="bz2")),
        ("a.zip", zipped),
        ("a-linux", lambda member: member[1]),
    ],
)
def test_each_kind_of_archive_is_installed_as_a_program(place, name, make):
    place.write(mine=place.binary(name, make(("tool", b'#!/bin/sh\necho "$@"')), args=["a b"]))
    assert place.run("agents", "--install", "mine").status == 0
    found = place.listed()["mine"]
    assert found["whyNot"] is None
    assert subprocess.check_output(found["command"], text=True) == "a b\n"


def test_installed_binary_is_started_by_its_id_with_its_arguments_and_variables(place):
    script = '#!/bin/sh\n[ "$1 $A" = "--acp b" ] || exit 9\nshift; exec {}\n'
    data = tar(("tool", script.format(" ".join(AGENT)).encode()))
    place.write(mine=place.binary("a.tgz", data, args=["--acp"], env={"A": "b"}))
    early = place.run("prompt", "x", "--agent", "mine")
    assert early.status == 1
    assert "'mine' cannot be started: acpterm agents --install mine installs it" in early.err
    assert place.server.paths == []
    assert place.run("agents", "--install", "mine").status == 0
    done = place.prompt("--agent", "mine")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_new_version_replaces_the_old_one_and_is_the_only_one_that_starts(place):
    for version in (b"one", b"two"):
        place.write(mine=place.binary("tool", version))
        assert "--install" in place.listed()["mine"]["whyNot"]
        assert place.run("agents", "--install", "mine").status == 0
        (program,) = place.state.glob("mine/*/tool")
        assert program.read_bytes() == version
        assert stat.S_IMODE(program.stat().st_mode) == 0o755
        assert place.listed()["mine"]["command"] == [str(program)]
    # Again, which repairs it.
    program.write_bytes(b"changed")
    assert place.run("agents", "--install", "mine").status == 0
    assert program.read_bytes() == b"two"


GOOD = ("tool", b"#!")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.tgz", tar(GOOD, ("../over", b"")), "'../over' would be outside of its directory"),
        ("a.tgz", tar(GOOD, ("/etc/over", b"")), "'/etc/over' would be outside"),
        ("a.tgz", tar(GOOD, link("out", "/etc")), "'out' is a link, or no regular file"),
        ("a.tgz", tar(GOOD, link("out", "tool", tarfile.LNKTYPE)), "'out' is a link"),
        ("a.tgz", tar(GOOD, link("fifo", "", tarfile.FIFOTYPE)), "'fifo' is a link, or no"),
        ("a.tgz", tar(GOOD, GOOD), "File exists"),
        ("a.tgz", tar(("other", b"")), "has no file './tool'"),
        ("a.tgz", tar(*[(f"f{n}", b"") for n in range(5)]), "more than 4 files"),
        ("a.tgz", tar(("tool", b"0" * 5000)), "more than 4096 bytes"),
        ("a.tgz", tar(GOOD)[:30], "cannot be unpacked"),
        ("a.tgz", b"\0" * 3000, "larger than 2048 bytes"),
        ("a.zip", zipped(GOOD, ("../over", b"")), "'../over' would be outside"),
        ("a.zip", zipped(("out", b"/etc"), mode=stat.S_IFLNK | 0o777), "'out' is a link"),
        ("a.zip", b"PK", "cannot be unpacked: File is not a zip file"),
    ],
    ids=[
        "dot-dot",
        "absolute",
        "link",
        "hard link",
        "fifo",
        "twice",
        "no program",
        "many files",
        "much unpacked",
        "cut",
        "large",
        "dot-dot in zip",
        "link in zip",
        "cut zip",
    ],
)
def test_bad_archive_is_refused_and_leaves_nothing(place, monkeypatch, name, data, expected):
    monkeypatch.setattr(installation, "MEMBERS_MAX", 4)
    monkeypatch.setattr(installation, "UNPACKED_BYTES_MAX", 4096)
    monkeypatch.setattr(installation, "ARCHIVE_BYTES_MAX", 2048)
    place.write(mine=place.binary(name, data))
    done = place.run("agents", "--install", "mine")
    assert (done.status, done.out) == (1, "")
    assert expected in done.err
    assert [path for path in place.state.rglob("*") if path.is_file()] == []
    assert list(place.state.parent.rglob("over")) == []


def test_archive_with_another_checksum_is_removed_and_nothing_of_it_runs(place):
    data = tar(GOOD)
    digest = hashlib.sha256(data).hexdigest()
    place.write(mine=place.binary("a.tgz", data, sha256="0" * 64))
    done = place.run("agents", "--install", "mine")
    assert done.status == 1
    assert (
        f"is not what the registry names: its SHA-256 is {digest}, and not {'0' * 64}" in done.err
    )
    assert list(place.state.iterdir()) == []
    assert place.run("prompt", "x", "--agent", "mine").status == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cmd": "../../tool"}, "leaves the archive"),
        ({"cmd": "/bin/sh"}, "leaves the archive"),
        ({"archive": "http://example.org/a.tgz"}, "is neither an https:// address"),
        ({"archive": "/away/tool"}, "is neither an https:// address"),
        ({"archive": "file:///bin/sh"}, "is neither an https:// address"),
        ({"sha256": None}, "has no sha256"),
    ],
)
def test_binary_that_cannot_be_trusted_is_not_downloaded(place, fields, expected):
    if fields.get("archive", "").startswith("/"):  # it is redirected
        fields["archive"] = place.address + fields["archive"]
    place.write(mine=place.binary("a.tgz", tar(GOOD), **fields))
    done = place.run("agents", "--install", "mine")
    assert done.status == 1
    assert expected in done.err
    assert "/a.tgz" not in place.server.paths


def test_only_a_user_installs_agents(place, monkeypatch):
    place.write(mine=place.binary("a.tgz", tar(GOOD)))
    monkeypatch.setattr("acpterm.commands.only_users._marked", lambda: "a mark")
    done = place.run("agents", "--install", "mine")
    assert done.status == 1
    assert "only the user installs agents" in done.err


# Starting


def test_package_is_started_by_npx_which_needs_no_answer(place):
    tool(place.bin / "npx", f'#!/bin/sh\n[ "$*" = "-y @a/b@1 --acp" ] && exec {" ".join(AGENT)}\n')
    place.write(node={"npx": {"package": "@a/b@1", "args": ["--acp"]}})
    done = place.prompt("--agent", "node")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ("kimmi", "there is no agent 'kimmi' in the registry: did you mean kimi?"),
        ("zzz", "there is no agent 'zzz' in the registry: acpterm agents lists all"),
        ("kimi", "the agent 'kimi' cannot be started: there is no program 'no-kimi'; npx (of"),
    ],
)
def test_agent_that_cannot_be_started_is_an_error_that_says_why(place, id_, expected):
    place.write(kimi={"npx": {"package": "k"}, "local": {"cmd": "no-kimi"}})
    done = place.run("prompt", "x", "--agent", id_, PATH=str(place.bin))
    assert done.status == 1
    assert expected in done.err
    assert place.run("agents", "--install", id_).status == 1


def test_editor_is_sent_why_the_agent_cannot_be_started(place):
    place.write(kimi={"local": {"cmd": "no-kimi"}})
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    proxy = subprocess.run(
        [*ACPTERM, "proxy", "--agent", "kimi"],
        env=place.environment(),
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert proxy.returncode == 1
    why = "the agent 'kimi' cannot be started: there is no program 'no-kimi'"
    assert json.loads(proxy.stdout)["error"]["message"] == why


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["proxy", "--agent", "a", "--", "b"], "say which agent once: --agent ID, or -- AGENT"),
        (["prompt", "x"], "end the line with -- AGENT ARG…, or use --agent ID"),
    ],
)
def test_agent_is_named_once(place, words, expected):
    done = place.run(*words)
    assert done.status == 2
    assert expected in done.err
