"""What a container provider refuses, and how docker's argv differs. No container is started.

Docker itself is not run: these tests check the arguments that it would get.
"""

import os

import pytest

from acpterm.providers.container import ContainerProvider, describe
from acpterm.providers.container_argv import EngineSetup, container_environment, run_argv
from acpterm.providers.provider import Command, ProviderError
from acpterm.providers.workspace import Workspace
from tests.support.cases import each_case


@pytest.fixture
def wanted(tmp_path):
    return Command(
        argv=["make", "x"],
        fallback_argv=None,
        env={"TERM": "xterm", "SECRET": "1"},
        cwd=str(tmp_path),
        workspace=str(tmp_path),
        shell="/bin/sh",
    )


def setup(engine, **more):
    values = {"user": "1000:1000", "keeps_id": False, "has_cgroup": True, **more}
    return EngineSetup(engine, "debian:12", ("acpterm=1-2-3-4",), **values)


def argv_of(wanted, engine, **more):
    workspace = Workspace(wanted.workspace, (), (), ())
    return run_argv(setup(engine, **more), "acpterm-1", wanted, workspace)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Return a function that makes a script the only program `podman`."""

    def make(script):
        path = tmp_path / "bin" / "podman"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
        return ContainerProvider("podman", "debian:12")

    return make


@pytest.mark.parametrize(
    ("name", "package"), [("podman", "podman and crun"), ("docker", r"docker\.io")]
)
async def test_missing_engine_is_refused_with_its_package(wanted, monkeypatch, name, package):
    monkeypatch.setenv("PATH", "/nowhere")
    provider = ContainerProvider(name, "debian:12")
    with pytest.raises(ProviderError, match=f"{name} is not installed.*{package}"):
        await provider.prepare(wanted)
    with pytest.raises(ProviderError, match=f"{name} is not installed"):
        await provider.check()


async def test_missing_image_is_refused_and_never_pulled(engine, wanted, tmp_path):
    provider = engine(
        f'echo "$1" >>{tmp_path}/calls; '
        '[ "$1" = --version ] && echo "podman version 9.8.7" && exit; '
        'echo "Error: inspecting object: debian:12: image not known" >&2; exit 125'
    )
    with pytest.raises(ProviderError, match="run `podman pull debian:12`"):
        await provider.prepare(wanted)
    assert (tmp_path / "calls").read_text().split() == ["--version", "image"]


@pytest.mark.parametrize("script", ["exit 1", "echo broken; exit 125", "kill -9 $$"])
async def test_broken_engine_is_refused(engine, wanted, script):
    with pytest.raises(ProviderError, match="podman does not work"):
        await engine(script).prepare(wanted)


async def test_engine_that_runs_nothing_is_refused_with_its_message(engine, wanted):
    script = (
        '[ "$1" = --version ] && echo "podman version 9.8.7" && exit; [ "$1" = image ] && exit; '
        'echo "Error: cgroups are broken" >&2; exit 126'
    )
    with pytest.raises(ProviderError, match=r"cgroups are broken.*try `podman run --rm"):
        await engine(script).prepare(wanted)


@pytest.mark.parametrize("image", ["", "-v", "--privileged", "a b", "x\ny"])
async def test_image_that_is_no_name_is_refused(engine, wanted, image):
    engine('echo "podman version 9.8.7"')
    with pytest.raises(ProviderError, match="is not the name of an image"):
        await ContainerProvider("podman", image).prepare(wanted)


GOOD = (
    "Uid: 1000 1000 1000 1000\nCapEff: 0000000000000000\nCapBnd: 0000000000000000\n"
    "NoNewPrivs: 1\nSeccomp: 2\nInterface: lo\n"
)


def test_container_that_isolates_is_described():
    line = describe("podman 9.8.7", setup("podman"), GOOD)
    assert line == (
        "podman 9.8.7: image debian:12, user 1000 without capabilities, no network, "
        "a system call filter, a control group of its own, so limits of memory, CPU, processes "
        "and disk do not apply"
    )


@each_case(
    ("output", "problem"),
    [
        ("", "capabilities"),
        (GOOD.replace("CapEff: 0000000000000000", "CapEff: 00000000a80425fb"), "capabilities"),
        (GOOD.replace("CapBnd: 0000000000000000\n", ""), "capabilities"),
        (GOOD.replace("NoNewPrivs: 1", "NoNewPrivs: 0"), "setuid"),
        (GOOD.replace("1000 1000 1000 1000", "0 0 0 0"), "do not run as user 1000"),
        (GOOD + "Interface: eth0\n", "network"),
        (GOOD + "Writable: /\n", "image is writable"),
        (GOOD + "Unwritable: /tmp\n", "/tmp is not writable"),
    ],
)
def test_container_that_does_not_isolate_is_refused(output, problem):
    with pytest.raises(ProviderError, match=problem):
        describe("podman 9.8.7", setup("podman"), output)


async def test_path_that_cannot_be_an_argument_of_a_mount_is_refused(engine, wanted, tmp_path):
    directory = tmp_path / "new\nline"
    directory.mkdir()
    wanted = wanted._replace(workspace=str(directory), cwd=str(directory))
    with pytest.raises(ProviderError, match="rename it"):
        argv_of(wanted, "podman")


def test_docker_gets_its_own_options_and_none_of_podmans(wanted):
    argv = argv_of(wanted, "docker", keeps_id=True, has_cgroup=False)
    start = argv.index("docker")
    assert argv[start : start + 3] == ["docker", "run", "-"]
    assert {"--init", "--detach-keys=ctrl-],ctrl-^,ctrl-_"} <= set(argv)
    podmans = ("--cgroups", "--userns", "--http-proxy", "--log-level")
    assert not [word for word in argv if word.startswith(podmans)]


def test_podman_gets_its_own_options(wanted):
    argv = argv_of(wanted, "podman", keeps_id=True, has_cgroup=False)
    start = argv.index("podman")
    assert argv[start : start + 4] == ["podman", "--log-level=error", "run", "-"]
    expected = {"--userns=keep-id", "--cgroups=disabled", "--http-proxy=false", "--detach-keys="}
    assert expected <= set(argv)
    assert "--init" not in argv
    plain = argv_of(wanted, "podman")
    assert not {"--userns=keep-id", "--cgroups=disabled"} & set(plain)


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_both_engines_isolate(wanted, engine):
    argv = argv_of(wanted, engine)
    options = argv[: argv.index("debian:12")]
    assert {
        "--rm",
        "--pull=never",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--network=none",
        "--user=1000:1000",
        "--label=acpterm=1-2-3-4",
        "--name=acpterm-1",
        f"--mount=type=bind,source={wanted.workspace},target={wanted.workspace}",
    } <= set(options)
    assert not [word for word in options if word.startswith(("--privileged", "--volume", "-v"))]
    assert "--network=none" not in argv_of(wanted._replace(network=True), engine)
    assert not any("SECRET" in word for word in argv)


def test_variables_are_those_of_the_request_and_a_few_harmless_ones():
    daemons = {"LC_ALL": "C", "GIT_PAGER": "cat", "AWS_KEY": "1", "PATH": "/x"}
    found = container_environment({**daemons, "MINE": "1"}, {"MINE": "1"})
    assert found == {
        "HOME": "/tmp",
        "LC_ALL": "C",
        "GIT_PAGER": "cat",
        "MINE": "1",
    }


def test_engine_gets_no_sockets_of_the_daemon(monkeypatch):
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "ACPTERM_KEEPER_FD", "DOCKER_HOST"):
        monkeypatch.setenv(name, "x")
    env = ContainerProvider("docker", "debian:12")._engine.env
    assert "DOCKER_HOST" in env
    assert not {"NOTIFY_SOCKET", "LISTEN_FDS", "ACPTERM_KEEPER_FD"} & set(env)
    assert env["PATH"] == os.environ["PATH"]
