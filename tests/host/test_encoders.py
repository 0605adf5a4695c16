"""Encoded updates are valid in both formats, whatever an agent has sent; and their content."""

import base64
import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp.terminal_updates import Info, ProgramExit
from acpterm.host.user.subscribe.encoders import V1MetaEncoder, V2Encoder, git_patch
from acpterm.jsonrpc import encode_notification
from tests.acp.validate import validate_sent
from tests.support.client_models import validate_v2
from tests.support.depth import examples

INFO = Info("t", "/p", "make")


def fields(**members):
    return {name: Raw(json.dumps(value).encode()) for name, value in members.items()}


def sent(form, updates):
    """Return updates as they are on the wire, after validating each."""
    valid = []
    for update in updates:
        params = {"sessionId": "s", "update": update}
        message = json.loads(encode_notification("session/update", params))
        if isinstance(form, V1MetaEncoder):
            validate_sent(message, {})
        else:
            validate_v2(message)
        valid.append(message["params"]["update"])
    return valid


def v2(**members):
    form = V2Encoder("/work")
    (update,) = sent(form, form.call("c", fields(**members), (), first=False))
    return update


def meta(*, first=False, infos=(), **members):
    form = V1MetaEncoder()
    return sent(form, form.call("c", fields(**members), infos, first=first))


# Whatever an agent sends

NAMES = (
    *("type", "content", "text", "uri", "name", "path", "newText", "oldText", "line", "resource"),
    *("annotations", "priority", "data", "mimeType", "blob", "terminalId", "_meta", "size"),
    *("audience", "lastModified"),
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, -1, 2**40, 0.5, "", "x", "/p", "file:///p", "text", "eA=="]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=8,
)
BLOCKS = st.one_of(
    VALUES,
    st.builds(
        lambda kind, more: {"type": kind, **more},
        st.sampled_from(["text", "image", "audio", "resource_link", "resource", "new"]),
        st.dictionaries(
            st.sampled_from(["text", "data", "mimeType", "uri", "name", "resource", "annotations"]),
            VALUES,
        ),
    ),
)
ITEMS = st.one_of(
    VALUES,
    st.builds(lambda block: {"type": "content", "content": block}, BLOCKS),
    st.builds(
        lambda path, old: {"type": "diff", "path": path, "newText": "x", "oldText": old},
        VALUES,
        VALUES,
    ),
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "title": VALUES,
        "kind": st.one_of(VALUES, st.sampled_from(["read", "execute"])),
        "status": st.one_of(VALUES, st.sampled_from(["completed", "cancelled"])),
        "content": st.one_of(VALUES, st.lists(ITEMS, max_size=3)),
        "locations": st.one_of(VALUES, st.lists(VALUES, max_size=3)),
        "rawInput": VALUES,
        "rawOutput": VALUES,
        "_meta": VALUES,
        "unknown": VALUES,
    },
)


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(
    members=CALLS, first=st.booleans(), number=st.integers(0, 2), cwd=st.sampled_from([None, "/w"])
)
def test_updates_are_valid_whatever_an_agent_sends(members, first, number, cwd):
    infos = [Info(f"t{n}", cwd, None) for n in range(number)]
    for form in (V1MetaEncoder(), V2Encoder(cwd)):
        sent(form, form.call("c", fields(**members), infos, first=first))


# Calls


def test_first_update_of_a_call_is_a_tool_call_in_v1_only():
    assert meta(first=True, status="completed") == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "status": "completed",
            "title": "tool call",
        }
    ]
    assert v2(status="completed")["sessionUpdate"] == "tool_call_update"


def test_each_new_terminal_has_its_own_update():
    content = [{"type": "terminal", "terminalId": name} for name in ("t", "u")]
    updates = meta(infos=[INFO, Info("u", None, None)], title="T", kind=None, content=content)
    assert [update["sessionUpdate"] for update in updates] == ["tool_call"] * 2 + [
        "tool_call_update"
    ]
    assert updates[0]["_meta"] == {"terminal_info": {"terminal_id": "t", "cwd": "/p"}}
    assert "content" not in updates[0]
    assert updates[1]["_meta"] == {"terminal_info": {"terminal_id": "u"}}
    assert updates[1]["content"] == content
    # Members are cleared where the schema allows it.
    assert updates[2]["kind"] is None


def test_meta_of_an_agent_is_passed_on_except_for_its_terminals():
    agents_meta = {"terminal_output": {"terminal_id": "x", "data": "d"}, "k": [1]}
    assert meta(_meta=agents_meta)[0]["_meta"] == {"k": [1]}
    assert v2(_meta=agents_meta, title="x")["_meta"] == {"k": [1]}
    assert meta(_meta={"terminal_exit": {}}) == []


def test_diff_becomes_a_change_with_a_patch():
    diff = {"type": "diff", "path": "/p/f", "oldText": "a\nb\n", "newText": "a\nc\n"}
    (item,) = v2(content=[diff])["content"]
    assert item["changes"] == [{"operation": "modify", "path": "/p/f", "fileType": "text"}]
    assert item["patch"] == {
        "format": "git_patch",
        "text": "diff --git a/p/f b/p/f\n--- a/p/f\n+++ b/p/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
    }
    new = {"type": "diff", "path": "f", "newText": ""}
    assert v2(content=[new])["content"][0]["changes"][0] == {
        "operation": "add",
        "path": "/work/f",
        "fileType": "text",
    }


def test_content_that_v2_does_not_allow_is_dropped_in_v2():
    link = {"type": "resource_link", "name": "n", "uri": "/no/uri"}
    text = {"type": "text", "text": "x", "annotations": {"priority": 7, "lastModified": "now"}}
    content = [{"type": "content", "content": block} for block in (link, text)]
    assert len(meta(content=content)[0]["content"]) == 2
    (item,) = v2(content=content)["content"]
    assert item["content"] == {"type": "text", "text": "x", "annotations": {}}
    where = [{"path": "a/../b", "line": 3}, {"path": "/c"}]
    assert v2(locations=where)["locations"] == [{"path": "/work/b", "line": 3}, {"path": "/c"}]


# Terminals


def test_divided_character_is_in_the_later_part():
    form = V1MetaEncoder()
    parts = [b"a\xc3", b"\xa9b\xf0\x9f\x98", b"\x80\xe2\x98"]
    updates = [update for data in parts for update in sent(form, form.output("c", "t", data))]
    updates += sent(form, form.ended("c", "t", ProgramExit(0, None)))
    data = [u["_meta"]["terminal_output"]["data"] for u in updates[:-1]]
    assert data == ["a", "éb", "😀", "\ufffd"]
    end = {"terminal_id": "t", "exit_code": 0, "signal": None}
    assert updates[-1]["_meta"] == {"terminal_exit": end}


def test_lost_output_is_a_line_in_v1_and_a_replacement_in_v2():
    form = V1MetaEncoder()
    assert sent(form, form.output("c", "t", b"\xc3")) == []
    (update,) = sent(form, form.output("c", "t", b"\xa9after", lost=5))
    output = update["_meta"]["terminal_output"]["data"]
    assert output == "\ufffd\r\n[5 bytes are missing]\r\nafter"
    form = V2Encoder()
    (update,) = sent(form, form.output("c", "t", b"\xa9after", lost=5))
    data = base64.b64encode(b"\xa9after").decode()
    assert update == {
        "sessionUpdate": "terminal_update",
        "terminalId": "t",
        "output": {"data": data},
    }


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ProgramExit(3, None), {"exitCode": 3}),
        (ProgramExit(None, "SIGTERM"), {"signal": "SIGTERM"}),
        (ProgramExit(None, None), {}),
        (ProgramExit(-1, None), {}),
        (None, None),
    ],
)
def test_exit_is_encoded_for_v2(end, status):
    form = V2Encoder()
    (update,) = sent(form, form.ended("c", "t", end))
    assert update["exitStatus"] == status


# Patches

LINES = st.lists(st.sampled_from(["a", "b", "", " c"]), max_size=8)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("git") is None, reason="git reads patches")
@settings(max_examples=examples(60), deadline=None)
@given(old=st.none() | LINES, new=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_git_applies_the_patch(tmp_path_factory, old, new, ends):
    directory = tmp_path_factory.mktemp("patch")
    before = None if old is None else "\n".join(old) + "\n" * ends[0]
    after = "\n".join(new) + "\n" * ends[1]
    if before is not None:
        (directory / "f").write_text(before)
    patch = git_patch("/f", before, after)
    if patch is None:
        assert before == after
        return
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=patch.encode(),
        cwd=directory,
        check=True,
    )
    assert (directory / "f").read_text() == after
