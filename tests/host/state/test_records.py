"""Records of a worker's state: round trips, older records, refusal of newer ones."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.host.state.records import (
    AgentSessionRecord,
    ConnectionRecord,
    ContextRecord,
    HostRecord,
    ListenRecord,
    StateError,
    StateVersionError,
    TerminalRecord,
    ToolCallRecord,
    pack_text,
    unpack_text,
)
from acpterm.runtime.exec_context import ExecContext

KINDS = [
    ConnectionRecord,
    HostRecord,
    ListenRecord,
    AgentSessionRecord,
    TerminalRecord,
    ToolCallRecord,
]
# Names and values from the system, some of which are not UTF-8.
system_text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff"))
ids = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
seconds = st.floats(0, 1e10)


def some(strategy):
    return st.none() | strategy


contexts = st.builds(
    ExecContext,
    env=st.dictionaries(system_text, system_text, max_size=5),
    cwd=system_text,
    umask=st.integers(0, 0o777),
    rlimits=st.lists(st.tuples(st.integers(0, 20), st.integers(-1), st.integers(-1))).map(tuple),
).filter(lambda context: all(abs(n) < 2**63 for limit in context.rlimits for n in limit))
terminals = st.builds(
    TerminalRecord,
    command=st.text(max_size=50),
    cwd=system_text.map(pack_text),
    name=some(st.text(max_size=10)),
    created_time=seconds,
    started_at=seconds,
    cols=st.integers(1, 10_000),
    rows=st.integers(1, 10_000),
    limit=st.integers(0, 2**40),
    ring_size=st.integers(0, 2**40),
    view=st.sampled_from(["text", "raw", "screen"]),
    lifetime_end=some(seconds),
    is_users=st.booleans(),
    connection=some(st.text(max_size=5)),
    agent=some(st.text(max_size=5)),
    session=some(st.text(max_size=5)),
    request=some(ids),
    is_held=st.booleans(),
    killed_by=some(st.sampled_from(["agent", "user"])),
    killed_at=some(seconds),
    release_at=some(seconds),
    released_by=some(st.just("agent")),
    released_time=some(seconds),
    released_at=some(seconds),
    tool_calls=st.lists(st.text(max_size=5)),
    recording=some(st.text(max_size=5)),
)


def changed_version(record, by):
    version, fields = msgspec.msgpack.decode(record.encode(), type=tuple[int, msgspec.Raw])
    return msgspec.msgpack.encode((version + by, fields))


@given(terminals)
def test_terminal_record_survives_a_round_trip(record):
    assert TerminalRecord.decode(record.encode()) == record


@given(contexts)
def test_execution_context_survives_a_round_trip(context):
    record = ConnectionRecord(secret="s", context=ContextRecord.from_context(context))
    assert ConnectionRecord.decode(record.encode()).context.to_context() == context


@given(system_text)
def test_text_that_is_not_utf8_survives_a_round_trip(text):
    assert unpack_text(pack_text(text)) == text


def test_oversized_environment_is_not_stored():
    context = ExecContext({"A": "x" * 7_000_000}, "/", 0o22, ())
    assert ContextRecord.from_context(context) is None


@pytest.mark.parametrize("kind", KINDS)
def test_newer_record_is_refused_with_advice(kind):
    newer = msgspec.msgpack.encode((kind.VERSION + 1, {}))
    with pytest.raises(StateVersionError) as refused:
        kind.decode(newer)
    message = str(refused.value)
    assert f"state of version {kind.VERSION + 1}" in message
    assert f"reads versions up to {kind.VERSION}: start the newer version" in message


def test_unknown_and_missing_fields_are_accepted():
    old = {"id": "session", "of a later acpterm": [1, 2]}
    record = AgentSessionRecord.decode(msgspec.msgpack.encode((1, old)))
    assert record == AgentSessionRecord(id="session")


@pytest.mark.parametrize("kind", KINDS)
@given(st.binary(max_size=64))
def test_garbage_raises_only_state_errors(kind, data):
    with suppress(StateError):
        kind.decode(data)


@given(terminals, st.data())
def test_truncated_record_is_an_error(record, data):
    encoded = record.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(StateError):
        TerminalRecord.decode(cut)
