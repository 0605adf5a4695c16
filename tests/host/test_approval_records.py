"""The records of questions in the store."""

import pytest

from acpterm.host.approvals import ApprovalRecords
from acpterm.host.state.store import approval_key
from acpterm.host.state.writer import StateWriter
from acpterm.policy.questions import Answer
from tests.policy.test_approvals import question
from tests.support.stores import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def writer(store):
    return StateWriter(store)


def test_question_and_answer_are_stored_before_other_observers_learn_of_them(store, writer):
    records = ApprovalRecords(writer)
    records.asked(question("old"))
    assert store.entries.keys() == {approval_key("old")}
    store.entries.clear()
    records.closed(question("old"), Answer(decision="allow", by="editor"))
    assert store.entries.keys() == {approval_key("old")}


def test_record_of_an_earlier_question_with_the_same_request_id_is_removed(store, writer):
    records = ApprovalRecords(writer)
    records.asked(question("old"))
    records.asked(question("new"))
    writer.flush()
    assert store.entries.keys() == {approval_key("new")}
    records.forget("c1", 1)
    writer.flush()
    assert not store.entries


def test_record_of_a_withdrawn_question_is_removed_and_that_of_an_answer_stays(store, writer):
    records = ApprovalRecords(writer)
    records.asked(question("old"))
    records.asked(question("new"))
    records.closed(question("old"), Answer(decision="deny", by="cancelled"))
    writer.flush()
    assert store.entries.keys() == {approval_key("new")}
    records.closed(question("new"), Answer(decision="allow", by="editor"))
    writer.flush()
    assert store.entries.keys() == {approval_key("new")}
    records.closed(question("new"), Answer(decision="deny", by="cancelled"))
    writer.flush()
    assert not store.entries
