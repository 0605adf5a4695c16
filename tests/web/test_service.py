"""The lifecycle of a daemon's HTTP server: start, take-over, failure, shutdown."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
import trio

from acpterm.config import Settings, agent_socket, web_dir
from acpterm.host.daemon_state import DaemonInfo
from acpterm.jsonrpc import RpcError
from acpterm.web.service import TlsError, WebService, tls_context
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.user import user_at
from tests.support.web import (
    Browser,
    refused_status,
    send_request,
    web_daemon,
    web_listens,
    web_status,
)


@contextmanager
def reserved_port():
    """Reserve a port: a daemon can listen on it, but no process is given it by the system."""
    with closing(socket.socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


async def open_link(running, **params):
    async with user_at(running.user_path) as user:
        return await user.request("web/open", params)


@pytest.mark.long
async def test_next_worker_listens_on_the_same_socket_and_knows_the_login(tmp_path):
    async with web_daemon(tmp_path) as web:
        browser = await web.browser()
        async with browser.user() as user:
            created = await user.request("terminal/create", {"command": "cat"})
            pid = (await web.daemon.status())["workerPid"]
            os.kill(pid, signal.SIGSTOP)
            # It waits in the socket's queue for the next worker.
            queued = await browser.connect()
            os.kill(pid, signal.SIGKILL)
            with trio.fail_after(DEADLINE_S):
                await user.closed.wait()
        async with queued:
            headers = [*browser.headers, ("X-Acpterm-Key", browser.key), ("Connection", "close")]
            reply = await send_request(
                queued, "POST", "/access", [*headers, ("Content-Length", "0")]
            )
            assert reply.json() == {"access": "user"}
        async with browser.user() as user:
            assert [one["terminalId"] for one in await user.list()] == [created["terminalId"]]
        assert (await web_status(web.daemon))["origin"] == web.origin
        assert (await web.daemon.status())["workerPid"] != pid


@pytest.mark.long
async def test_restart_of_the_worker_keeps_the_socket_and_the_login(tmp_path):
    async with web_daemon(tmp_path) as web:
        browser = await web.browser()
        link = await web.link()
        assert (await run(web.daemon.path, "restart")).status == 0
        assert (await web_listens(web.daemon))["origin"] == web.origin
        assert (await web.stranger().log_in(link)).status == 200
        async with browser.user() as user:
            assert await user.list() == []


@pytest.mark.long
async def test_server_that_was_opened_survives_the_worker_and_the_daemon(tmp_path):
    async with daemon(tmp_path, terminate=True) as running:
        assert (await web_status(running)) == {
            "address": None,
            "origin": None,
            "error": None,
            "tokenFile": None,
        }
        opened = await open_link(running)
        browser = Browser(opened["url"].partition("/login")[0])
        assert (await browser.log_in(opened["url"])).status == 200
        await running.kill_worker()
        assert (await web_listens(running))["address"] == opened["address"]
        async with browser.user() as user:
            assert await user.list() == []
    async with daemon(tmp_path) as running:
        assert (await web_status(running))["address"] is None
        assert (await open_link(running))["address"] == opened["address"]
        async with browser.user() as user:
            assert await user.list() == []


async def test_open_returns_new_links_to_the_same_server(tmp_path, web):
    one, two = await open_link(web.daemon), await open_link(web.daemon)
    assert one["url"] != two["url"]
    assert one["address"] == two["address"]
    again = await open_link(web.daemon, address=one["address"])
    assert again["address"] == one["address"]
    async with web.daemon.user() as user:
        with pytest.raises(RpcError, match=r"listens on 127\.0\.0\.1:\d+ already"):
            await user.request("web/open", {"address": "127.0.0.1:1"})
        with pytest.raises(RpcError, match="is not ADDRESS:PORT"):
            await user.request("web/open", {"address": "example.org:80"})


@pytest.mark.long
async def test_open_refuses_an_address_that_other_machines_can_reach(tmp_path):
    async with daemon(tmp_path) as running:
        async with running.user() as user:
            with pytest.raises(RpcError, match="set http_remote"):
                await user.request("web/open", {"address": "0.0.0.0:0"})
        assert "http_remote" in (await web_status(running))["error"]
        assert (await open_link(running))["address"].startswith("127.0.0.1:")
        assert (await web_status(running))["error"] is None


async def test_daemon_serves_although_the_port_is_in_use(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        async with daemon(tmp_path, "--http", address) as running, running.user() as user:
            await poll(lambda: "HTTP server does not listen" in running.process.logged())
            status = await user.request("web/status")
            assert status["address"] is None
            assert status["error"] == (
                f"cannot listen on {address}: Address already in use: choose another port"
            )
            assert (await user.request("status"))["http"] == status
            sock.close()
            assert (await user.request("web/open"))["address"] == address


@pytest.mark.long
async def test_daemon_serves_although_the_certificate_is_missing(tmp_path):
    settings = {"http_certificate": tmp_path / "c.pem", "http_key": tmp_path / "k.pem"}
    async with daemon(tmp_path, "--http", "127.0.0.1:0", settings=settings) as running:
        await poll(lambda: "HTTP server does not listen" in running.process.logged())
        assert "c.pem" in (await web_status(running))["error"]


@pytest.mark.long
def test_serve_refuses_an_unsafe_address(tmp_path):
    for address, wrong in (
        ("0.0.0.0:8080", "set http_remote"),
        ("example.org:80", "is not ADDRESS:PORT"),
        ("127.0.0.1", "is not ADDRESS:PORT"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "acpterm", "serve", "--http", address],
            env=environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_SOCKET=str(tmp_path / "s")),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 1
        assert wrong in done.stderr


@pytest.fixture
def ports():
    with reserved_port() as one, reserved_port() as two:
        yield one, two


@pytest.mark.long
async def test_worker_listens_elsewhere_when_the_setting_has_changed(tmp_path, ports):
    config = tmp_path / "config.toml"
    one, two = ports
    config.write_text(f'http = "127.0.0.1:{one}"\n')
    async with daemon(tmp_path, "--config", str(config)) as running:
        assert (await web_listens(running))["address"] == f"127.0.0.1:{one}"
        config.write_text(f'http = "127.0.0.1:{two}"\n')
        await running.kill_worker()
        assert (await web_listens(running))["address"] == f"127.0.0.1:{two}"
        with pytest.raises(OSError):  # noqa: PT011  refused
            await trio.open_tcp_stream("127.0.0.1", one)
        config.write_text("")
        await running.kill_worker()
        assert (await web_status(running))["address"] is None
        with pytest.raises(OSError):  # noqa: PT011  refused
            await trio.open_tcp_stream("127.0.0.1", two)


@pytest.mark.long
async def test_shutdown_does_not_wait_for_connections_that_do_not_read(tmp_path):
    async with web_daemon(tmp_path) as web:
        client = web.api_client()
        async with client.websocket("/user") as stuck, await web.stranger().connect() as idle:
            async with client.user() as user:
                created = await user.request("terminal/create", {"command": "yes"})
                terminal = created["terminalId"]
                params = {"terminalId": terminal, "token": "t", "cols": 80, "rows": 24}
                method = "_acpterm/terminal/attach"
                await stuck.send_json(
                    {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                )
                while (await user.terminal_request("get", terminal))["position"] < 1 << 24:
                    await trio.sleep(0.01)
                with trio.fail_after(DEADLINE_S):
                    web.daemon.process.terminate()
                    assert await web.daemon.process.wait() == 0
                with trio.fail_after(DEADLINE_S):
                    await user.closed.wait()
            with trio.fail_after(DEADLINE_S):
                assert await idle.receive_some() == b""


@pytest.mark.long
async def test_shutdown_closes_websockets_as_going_away(tmp_path):
    async with web_daemon(tmp_path) as web, web.api_client().websocket("/user") as websocket:
        web.daemon.process.terminate()
        assert await websocket.wait_closed() == 1001
        assert await web.daemon.process.wait() == 0


@pytest.fixture
def certificate(tmp_path):
    """Make a certificate for this machine, and its key; return the settings with both."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *(
                "-nodes",
                "-keyout",
                "k.pem",
                "-out",
                "c.pem",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    return {"http_certificate": tmp_path / "c.pem", "http_key": tmp_path / "k.pem"}


async def test_server_uses_tls_with_a_certificate(tmp_path, certificate):
    context = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
    async with web_daemon(tmp_path, settings=certificate) as web:
        assert web.origin.startswith("https://127.0.0.1:")
        browser = web.stranger()
        browser.tls = context
        reply = await browser.log_in(await web.link())
        assert reply.status == 200
        assert "Secure" in reply.headers["set-cookie"].split("; ")
        async with browser.user() as user:
            created = await user.request("terminal/create", {"command": "seq 100000"})
            await user.terminal_request("wait", created["terminalId"])
            output = await user.terminal_request("output", created["terminalId"])
            assert output["text"].endswith("100000\n")
        plain = web.stranger()
        async with await plain.connect() as stream:
            # Not TLS: the connection is closed, and the server continues.
            await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            with trio.fail_after(DEADLINE_S):
                await stream.receive_some()
        assert (await browser.request("/access", {})).json() == {"access": "user"}


@pytest.mark.parametrize(
    ("setting", "what", "error"),
    [
        ("http_key", "encrypted", "http_key .* has a pass phrase"),
        ("http_key", "directory", "http_key .* is not a file"),
        ("http_key", "fifo", "http_key .* is not a file"),
        ("http_key", "text", "http_key .* no private key in PEM format"),
        ("http_key", "other", "http_key .* is not the key of http_certificate"),
        ("http_certificate", "directory", "http_certificate .* is not a file"),
        ("http_certificate", "text", "http_certificate .* no certificate in PEM format"),
        ("http_certificate", "damaged", "http_certificate .*, http_key "),
        ("http_certificate", "missing", "http_certificate .* No such file"),
    ],
)
def test_unusable_tls_files_are_refused_by_name_and_without_a_prompt(
    tmp_path, certificate, setting, what, error
):
    bad = tmp_path / "bad"
    key = tmp_path / "k.pem"
    if what == "directory":
        bad.mkdir()
    elif what == "fifo":
        os.mkfifo(bad)
    elif what == "text":
        bad.write_text("text")
    elif what == "damaged":
        bad.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    elif what == "encrypted":
        encrypt = "openssl", "pkey", "-aes128", "-passout", "pass:x", "-in", key, "-out", bad
        subprocess.run(encrypt, check=True, capture_output=True)
    elif what == "other":
        make = "openssl", "genpkey", "-algorithm", "ed25519", "-out", bad
        subprocess.run(make, check=True, capture_output=True)
    chosen = {name: str(path) for name, path in {**certificate, setting: bad}.items()}
    with pytest.raises(TlsError, match=error):
        tls_context(Settings(**chosen))


@pytest.fixture
def encrypted(tmp_path, certificate):
    """Return the settings with a key that has a pass phrase."""
    encrypt = ("openssl", "pkey", "-aes128", "-passout", "pass:x", "-in", "k.pem", "-out", "e.pem")
    subprocess.run(encrypt, check=True, capture_output=True, cwd=tmp_path)
    return {**certificate, "http_key": tmp_path / "e.pem"}


@pytest.mark.long
async def test_daemon_serves_although_the_key_has_a_pass_phrase(tmp_path, encrypted):
    async with daemon(tmp_path, "--http", "127.0.0.1:0", settings=encrypted) as running:
        await poll(lambda: "HTTP server does not listen" in running.process.logged())
        assert "pass phrase" in (await web_status(running))["error"]


@pytest.mark.long
async def test_server_says_what_to_install_when_the_extra_is_missing(tmp_path):
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "starlette.py").write_text(
        "raise ModuleNotFoundError('no starlette', name='starlette')"
    )
    env = environment(XDG_CONFIG_HOME=str(tmp_path), PYTHONPATH=str(tmp_path / "shadow"))
    async with daemon(tmp_path, env=env) as running, running.user() as user:
        with pytest.raises(RpcError, match="pipx inject acpterm 'h11>="):
            await user.request("web/open")
        assert (await user.request("status"))["version"]


def test_files_of_the_server_are_hidden_from_programs_in_sandboxes():
    settings = Settings()
    service = WebService(settings)
    paths = DaemonInfo(web=service).own_paths(settings)
    directory = web_dir(agent_socket(settings))
    assert directory in paths
    assert service.private_paths == [directory]


@pytest.mark.long
async def test_token_file_is_replaced_when_it_was_removed(tmp_path):
    async with web_daemon(tmp_path) as web:
        old = web.api_client()
        web.token_file.unlink()
        await web.daemon.kill_worker()
        await web_listens(web.daemon)
        assert await refused_status(old.websocket("/user")) == 401
        async with web.api_client().user() as user:
            assert await user.list() == []
