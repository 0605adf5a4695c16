"""The records of questions in the store."""

import pytest

from acpterm.host.approvals import ApprovalRecords
from acpterm.host.state.store import approval_key
from acpterm.policy.questions import Answer
from tests.policy.test_approvals import question


class Writer:
    """The keys that are stored."""

    def __init__(self):
        self.keys = set()

    def changed(self, key, encode):
        encode()
        self.keys.add(key)

    def removed(self, key):
        self.keys.discard(key)


@pytest.fixture
def writer():
    return Writer()


def test_record_of_an_earlier_question_with_the_same_request_id_is_removed(writer):
    records = ApprovalRecords(writer)
    records.asked(question("old"))
    records.asked(question("new"))
    assert writer.keys == {approval_key("new")}
    records.forget("c1", 1)
    assert not writer.keys


def test_record_of_a_withdrawn_question_is_removed_and_that_of_an_answer_stays(writer):
    records = ApprovalRecords(writer)
    records.asked(question("old"))
    records.asked(question("new"))
    records.closed(question("old"), Answer(decision="deny", by="cancelled"))
    assert writer.keys == {approval_key("new")}
    records.closed(question("new"), Answer(decision="allow", by="editor"))
    assert writer.keys == {approval_key("new")}
    records.closed(question("new"), Answer(decision="deny", by="cancelled"))
    assert not writer.keys
