"""The hosts and origins that the server accepts."""

from contextlib import closing

import pytest

from acpterm.config import Settings
from acpterm.config.http import HttpAddress
from acpterm.web.endpoint import HttpEndpoint, bind


class Listening:
    """A socket that listens on an address."""

    def __init__(self, host, port):
        self._name = (host, port, 0, 0) if ":" in host else (host, port)

    def getsockname(self):
        return self._name


def endpoint(host, port, **settings):
    return HttpEndpoint(Listening(host, port), Settings(**settings))


TLS = {"http_certificate": "/c", "http_key": "/k"}
PROXY = {"http_origins": ["https://terminals.example.org"]}


@pytest.mark.parametrize(
    ("found", "hosts", "origins", "origin"),
    [
        (
            endpoint("127.0.0.1", 8080),
            {"127.0.0.1:8080", "localhost:8080"},
            {"http://127.0.0.1:8080", "http://localhost:8080"},
            "http://127.0.0.1:8080",
        ),
        (
            endpoint("::1", 8080),
            {"[::1]:8080", "localhost:8080"},
            {"http://[::1]:8080", "http://localhost:8080"},
            "http://[::1]:8080",
        ),
        (
            endpoint("127.0.0.1", 80),
            {"127.0.0.1", "localhost"},
            {"http://127.0.0.1", "http://localhost"},
            "http://127.0.0.1",
        ),
        (
            endpoint("127.0.0.1", 80, **TLS),
            {"127.0.0.1:80", "localhost:80"},
            {"https://127.0.0.1:80", "https://localhost:80"},
            "https://127.0.0.1:80",
        ),
        (
            endpoint("127.0.0.1", 8080, **PROXY),
            {"127.0.0.1:8080", "localhost:8080", "terminals.example.org"},
            {"http://127.0.0.1:8080", "http://localhost:8080", "https://terminals.example.org"},
            "http://127.0.0.1:8080",
        ),
        (
            endpoint("192.0.2.7", 8443, **TLS),
            {"192.0.2.7:8443"},
            {"https://192.0.2.7:8443"},
            "https://192.0.2.7:8443",
        ),
        (
            endpoint("0.0.0.0", 8080, **PROXY),
            {"terminals.example.org"},
            {"https://terminals.example.org"},
            "https://terminals.example.org",
        ),
    ],
)
def test_endpoint_accepts_its_own_names_and_those_of_the_settings(found, hosts, origins, origin):
    assert (found.hosts, found.origins, found.origin) == (hosts, origins, origin)
    assert found.cookie == f"acpterm-{found.address.port}"


def test_bind_chooses_a_port_and_can_bind_it_again():
    with closing(bind(HttpAddress("127.0.0.1", 0))) as sock:
        found = HttpEndpoint(sock, Settings())
        assert found.address.port > 0
        with pytest.raises(OSError, match="in use"):
            bind(found.address)
    bind(found.address).close()
