"""Which messages are sent again after a connection was lost."""

from acpterm.jsonrpc import encode_notification, encode_request
from acpterm.link import unanswered
from acpterm.link.unanswered import Unanswered

UPDATE = {"sessionId": "s", "update": {}}


class Client:
    """A client that only records its messages."""

    def __init__(self):
        self.unanswered = Unanswered()

    def ask(self, id_, method="terminal/output", **params):
        line = encode_request(id_, method, {"sessionId": "s", **params})
        self.unanswered.request(id_, method, line)
        return line

    def tell(self, method, **params):
        line = encode_notification(method, {"sessionId": "s", **params})
        self.unanswered.notification(method, line)
        return line

    @property
    def repeated(self):
        return self.unanswered.lost().lines


def test_unanswered_requests_are_repeated_in_order():
    client = Client()
    lines = [client.ask(id_) for id_ in (7, "seven", 1)]
    assert client.unanswered.answered("seven") == "terminal/output"
    assert client.repeated == [lines[0], lines[2]]
    assert client.repeated == [lines[0], lines[2]]
    assert client.unanswered.size == len(lines[0] + lines[2])
    client.unanswered.answered(7)
    client.unanswered.answered(1)
    assert client.repeated == []
    assert client.unanswered.size == 0


def test_response_to_an_unknown_request_changes_nothing():
    client = Client()
    line = client.ask(1)
    assert client.unanswered.answered(2) is None
    assert client.unanswered.answered(None) is None
    assert client.repeated == [line]


def test_write_and_signal_are_not_repeated_and_fail_as_unknown():
    client = Client()
    client.ask(1, "_acpterm/terminal/write", data="rm -r x\n")
    line = client.ask(2)
    client.ask(3, "_acpterm/terminal/signal", signal="INT")
    assert client.unanswered.size == len(line)
    lost = client.unanswered.lost()
    assert lost.lines == [line]
    assert [id_ for id_, _ in lost.errors] == [1, 3]
    typed, signalled = (error.message for _, error in lost.errors)
    assert "unknown whether it was typed; read the screen before you repeat it" in typed
    assert "unknown whether the signal was sent" in signalled
    assert client.unanswered.lost().errors == []


def test_request_lost_with_several_workers_fails():
    client = Client()
    client.ask(1)
    wait = client.ask(2, "terminal/wait_for_exit")
    for _ in range(unanswered.REPEATS_MAX):
        client.ask(3)
        assert len(client.unanswered.lost().lines) == 3
        client.unanswered.answered(3)
    later = client.ask(3)
    lost = client.unanswered.lost()
    # Requests that wait for a program were pending by chance.
    assert lost.lines == [wait, later]
    assert [(id_, "died 4 times" in error.message) for id_, error in lost.errors] == [(1, True)]
    assert client.unanswered.size == len(wait + later)


def test_request_with_a_null_id_is_not_recorded():
    client = Client()
    client.ask(None)
    assert client.repeated == []


def test_error_for_a_duplicate_id_does_not_answer_the_first_request():
    client = Client()
    first = client.ask(1)
    client.ask(1)
    client.unanswered.answered(1, failed=True)
    assert client.repeated == [first]
    client.unanswered.answered(1)
    assert client.repeated == []


def test_cancelled_request_is_repeated_with_its_cancellation():
    client = Client()
    first, cancel = client.ask(1), encode_notification("$/cancel_request", {"requestId": 1})
    second = client.ask(2)
    client.unanswered.cancel(1, cancel)
    client.unanswered.cancel(9, cancel)
    assert client.repeated == [first + cancel, second]
    client.unanswered.answered(1)
    client.unanswered.answered(2)
    assert client.unanswered.size == 0


def test_notification_is_repeated_until_a_later_request_is_answered():
    client = Client()
    before = client.ask(1)
    update = client.tell("session/update", update={})
    later = client.ask(2)
    assert client.repeated == [before, update, later]
    client.unanswered.answered(1)
    assert client.repeated == [update, later]
    client.unanswered.answered(2)
    assert client.repeated == []


def test_session_cancel_sent_last_is_repeated():
    client = Client()
    create = client.ask(1, "terminal/create", command="true")
    cancel = client.tell("session/cancel")
    assert client.repeated == [create, cancel]


def test_session_cancel_is_not_repeated_after_a_later_create():
    client = Client()
    other = encode_notification("session/cancel", {"sessionId": "other"})
    client.unanswered.notification("session/cancel", other)
    client.tell("session/cancel")
    update = client.tell("session/update", update={})
    create = client.ask(1, "terminal/create", command="true")
    assert client.repeated == [other, update, create]


def test_other_notifications_are_not_recorded():
    client = Client()
    client.tell("initialized")
    assert client.repeated == []


def test_memory_for_notifications_is_bounded():
    client = Client()
    lines = [client.tell("session/update", update={"x": "y" * 1000, "n": n}) for n in range(2000)]
    repeated = client.repeated
    assert sum(map(len, repeated)) <= unanswered.NOTIFICATION_BYTES_MAX
    assert repeated == lines[-len(repeated) :]
    assert client.unanswered.size == 0
