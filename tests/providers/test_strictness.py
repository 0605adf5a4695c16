"""Which provider an agent may request instead of the one that the user has selected."""

import pytest

from acpterm.host.launch.placement import allowed_places, stricter
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


def test_refusal_names_the_places_that_may_be_requested():
    with pytest.raises(RpcError, match="request one of ssh:a, or none"):
        stricter("ssh:a", "local", network=True)
    with pytest.raises(RpcError, match="request one of ssh:a, ssh:b, or none"):
        stricter("ssh:a", "local", network=True, places=["ssh:a", "ssh:b"])
    with pytest.raises(RpcError, match="request one of podman, ssh:a, or none"):
        stricter("podman", "local", network=True, places=["ssh:a"])


def test_agent_may_request_the_places_of_its_profile():
    places = allowed_places(["ssh:build1", "ssh:web"], [["ssh:build*"]])
    assert places == ["ssh:build1"]
    assert stricter("local", "ssh:build1", network=False, places=places) == "ssh:build1"
    assert stricter("podman", "ssh:build1", network=False, places=places) == "ssh:build1"
    for selected in ("local", "ssh:build1"):
        with pytest.raises(RpcError, match="it allows ssh:build1"):
            stricter(selected, "ssh:web", network=False, places=places)


def test_place_must_be_allowed_by_all_profiles():
    assert allowed_places(["ssh:a", "ssh:b"], [["ssh:*"], ["ssh:b"]]) == ["ssh:b"]
    assert allowed_places(["ssh:a"], [["ssh:*"], []]) == []


def test_agent_of_a_place_may_request_nothing_else():
    for name in NAMES:
        with pytest.raises(RpcError, match="is not stricter"):
            stricter("ssh:build1", name, network=False)
