"""Which provider an agent may request instead of the one that the user has selected."""

import pytest

from acpterm.host.launch.placement import stricter
from acpterm.jsonrpc import RpcError
from acpterm.providers.provider import ENGINES, NAMES


def allowed(selected, *, network):
    """Return the providers that an agent can request instead of `selected`."""
    found = set()
    for name in NAMES:
        try:
            assert stricter(selected, name, network=network) == name
        except RpcError:
            continue
        found.add(name)
    return found


@pytest.mark.parametrize("network", [False, True])
def test_agent_may_request_only_what_isolates_more(network):
    bubblewrap = set() if network else {"bubblewrap"}
    assert allowed("local", network=network) == set(NAMES)
    assert allowed("landlock", network=network) == {"landlock", *bubblewrap, *ENGINES}
    assert allowed("bubblewrap", network=network) == {"bubblewrap", *ENGINES}
    for engine in ENGINES:
        assert allowed(engine, network=network) == {engine}


def test_refusal_names_what_may_be_requested():
    with pytest.raises(RpcError, match="request one of landlock, podman, docker, or none"):
        stricter("landlock", "bubblewrap", network=True)
