"""The messages of a PTY pool's WebSocket, as the document writes them."""

import pytest

from acpterm.acp.pool import PoolTerminal
from acpterm.web.pool.messages import (
    AttachedMessage,
    AttachMessage,
    DetachMessage,
    ErrorMessage,
    ExitMessage,
    InputMessage,
    InvalidMessageError,
    OutputMessage,
    ResizeMessage,
    TerminalEvent,
    encode,
    parse,
)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ('{"type": "pty:attach", "id": "pty-abc123"}', AttachMessage("pty-abc123")),
        ('{"type": "pty:detach", "id": "pty-abc123"}', DetachMessage("pty-abc123")),
        (
            '{"type": "pty:input", "id": "pty-abc123", "data": "ls -la\\n"}',
            InputMessage("pty-abc123", "ls -la\n"),
        ),
        (
            '{"type": "pty:resize", "id": "pty-abc123", "cols": 120, "rows": 40}',
            ResizeMessage("pty-abc123", 120, 40),
        ),
        (
            '{"id": "pty-abc123", "further": [1, {}], "type": "pty:attach"}',
            AttachMessage("pty-abc123"),
        ),
    ],
)
def test_messages_of_the_document_are_parsed(frame, message):
    assert parse(frame) == message


TERMINAL = PoolTerminal(
    id="pty-xyz789",
    cwd="/path/to/project",
    owner="agent",
    visible=False,
    createdAt=1706234567890,
    command=["npm", "run", "dev"],
)


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (AttachedMessage("pty-1", "a\n"), '{"type":"pty:attached","id":"pty-1","history":"a\\n"}'),
        (OutputMessage("pty-1", "text"), '{"type":"pty:output","id":"pty-1","data":"text"}'),
        (ExitMessage("pty-1", 0), '{"type":"pty:exit","id":"pty-1","exitCode":0}'),
        (
            ErrorMessage("pty-1", "Session not found"),
            '{"type":"pty:error","id":"pty-1","error":"Session not found"}',
        ),
        (
            TerminalEvent("created", TERMINAL),
            (
                '{"type":"terminal","event":"created","terminal":{"id":"pty-xyz789",'
                '"cwd":"/path/to/project","owner":"agent","visible":false,'
                '"createdAt":1706234567890,"command":["npm","run","dev"]}}'
            ),
        ),
    ],
)
def test_messages_of_the_server_are_those_of_the_document(message, frame):
    assert encode(message) == frame


def test_event_with_output_has_the_output():
    assert encode(TerminalEvent("output", TERMINAL, "text")).endswith('},"output":"text"}')


TYPES = "pty:attach, pty:detach, pty:input, pty:resize"


@pytest.mark.parametrize(
    ("frame", "identifier", "error"),
    [
        (b'{"type": "pty:attach", "id": "a"}', "", "the frame is binary: send JSON in text frames"),
        ("", "", "the message is not JSON"),
        ("{", "", "the message is not JSON"),
        ("[" * 100_000, "", ""),
        ('{"type": "pty:input", "id": "a", "data": "\\ud800"}', "", "the message is not JSON"),
        ('"text"', "", 'the message is "text": it must be an object with type and id'),
        ("[]", "", "the message is []: it must be an object with type and id"),
        ('{"id": "a"}', "a", f"type is missing: it must be one of {TYPES}"),
        ('{"type": null, "id": "a"}', "a", f"type is null: it must be one of {TYPES}"),
        ('{"type": "pty:kill", "id": "a"}', "a", f'type is "pty:kill": it must be one of {TYPES}'),
        ('{"type": {"a": 1}, "id": "a"}', "a", f'type is {{"a": 1}}: it must be one of {TYPES}'),
        ('{"type": "pty:attach"}', "", "message.id is missing: it must be a string"),
        ('{"type": "pty:attach", "id": 7}', "", "message.id is 7: it must be a string"),
        ('{"type": "pty:input", "id": "a"}', "a", "message.data is missing"),
        ('{"type": "pty:input", "id": "a", "data": 1}', "a", "message.data is 1"),
        ('{"type": "pty:resize", "id": "a", "cols": 1000000, "rows": 1}', "a", "message.cols is"),
        ('{"type": "pty:resize", "id": "a", "cols": 80, "rows": 0}', "a", "message.rows is 0"),
        ('{"type": "pty:resize", "id": "a", "cols": -1, "rows": 1}', "a", "message.cols is -1"),
        ('{"type": "pty:resize", "id": "a", "cols": 80.5, "rows": 1}', "a", "message.cols is 80.5"),
        ('{"type": "pty:resize", "id": "a", "cols": "80", "rows": 1}', "a", "message.cols is"),
    ],
)
def test_message_that_is_not_valid_is_refused_with_the_reason(frame, identifier, error):
    with pytest.raises(InvalidMessageError) as raised:
        parse(frame)
    assert raised.value.id == identifier
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("member", ["id", "type", "data"])
def test_error_does_not_repeat_what_is_long(member):
    frame = '{"type": "pty:input", "id": "a", "data": 1}'.replace(
        {"id": '"a"', "type": '"pty:input"', "data": "1"}[member], '["' + "x" * 1_000_000 + '"]'
    )
    with pytest.raises(InvalidMessageError) as raised:
        parse(frame)
    assert len(str(raised.value)) < 300


def test_error_has_no_id_that_is_long():
    with pytest.raises(InvalidMessageError) as raised:
        parse('{"type": "x", "id": "%s"}' % ("a" * 1_000_000))
    assert raised.value.id == ""
