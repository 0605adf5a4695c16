"""The wire types agree with the schema in every field, and in which values each accepts."""

import functools
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from acpterm import jsonrpc
from acpterm.acp import agent, initialize, session, terminal
from acpterm.acp.lenient import decode, fields_of
from acpterm.host.agent.methods import NOTIFICATIONS, REQUESTS
from acpterm.jsonrpc import RpcError
from tests.acp.validate import DEFS, V2_DEFS, definition_of, sample
from tests.support.cases import each_case

MODELS = [
    (terminal.EnvVariable, "EnvVariable"),
    (terminal.CreateTerminalRequest, "CreateTerminalRequest"),
    (terminal.CreateTerminalResponse, "CreateTerminalResponse"),
    (terminal.TerminalRequest, "TerminalOutputRequest"),
    (terminal.TerminalRequest, "WaitForTerminalExitRequest"),
    (terminal.TerminalRequest, "KillTerminalRequest"),
    (terminal.TerminalRequest, "ReleaseTerminalRequest"),
    (terminal.TerminalExitStatus, "TerminalExitStatus"),
    (terminal.TerminalOutputResponse, "TerminalOutputResponse"),
    (terminal.WaitForTerminalExitResponse, "WaitForTerminalExitResponse"),
    (terminal.Empty, "KillTerminalResponse"),
    (terminal.Empty, "ReleaseTerminalResponse"),
    (initialize.InitializeRequest, "InitializeRequest"),
    (initialize.FileSystemCapabilities, "FileSystemCapabilities"),
    (initialize.ClientCapabilities, "ClientCapabilities"),
    (initialize.Implementation, "Implementation"),
    (session.Content, "Content"),
    (session.Diff, "Diff"),
    (session.Terminal, "Terminal"),
    (session.ToolCallLocation, "ToolCallLocation"),
    (session.ToolCall, "ToolCall"),
    (session.ToolCallUpdate, "ToolCallUpdate"),
    (session.SessionNotification, "SessionNotification"),
    (session.CancelNotification, "CancelNotification"),
    (agent.AuthMethod, "AuthMethodAgent"),
    (agent.SessionCapabilities, "SessionCapabilities"),
    (agent.AgentCapabilities, "AgentCapabilities"),
    (agent.InitializeResponse, "InitializeResponse"),
    (agent.NewSessionResponse, "NewSessionResponse"),
    (agent.PromptResponse, "PromptResponse"),
    (agent.PermissionOption, "PermissionOption"),
    (agent.RequestPermissionRequest, "RequestPermissionRequest"),
    (agent.ReadTextFileRequest, "ReadTextFileRequest"),
    (agent.WriteTextFileRequest, "WriteTextFileRequest"),
]

# Members that the models omit, since they do not concern a terminal host.
NOT_MODELLED = {
    "ClientCapabilities": {"auth", "elicitation"},
    "AgentCapabilities": {"promptCapabilities", "mcpCapabilities", "auth"},
    "SessionCapabilities": {"list", "delete", "close"},
    "NewSessionResponse": {"modes", "configOptions"},
}


@each_case(("model", "name"), MODELS)
def test_fields_agree_with_the_schema(model, name):
    definition = DEFS[name]
    properties = definition["properties"]
    own = {field.wire_name: field for field in fields_of(model)}
    assert own.keys() == properties.keys() - NOT_MODELLED.get(name, set())
    required = {wire_name for wire_name, field in own.items() if field.required}
    assert required == set(definition.get("required", []))
    # A new kind of leniency needs code.
    flags = {key for name in own for key in properties[name] if key.startswith("x-")}
    assert flags <= {ON_ERROR, ON_NULL, SKIP}


ON_ERROR, ON_NULL = "x-deserialize-default-on-error", "x-deserialize-default-on-null"
SKIP = "x-deserialize-skip-invalid-items"
# Members that stay raw JSON, since they are decoded later or only passed on.
RAW = {("Content", "content"), ("SessionNotification", "update")}
VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**16, 2**32, "9", "true", "", {}, {"name": 5}, {"name": "A"}),
    *([], [5], ["x", None], [{}], [{"name": "A", "value": 5}], [{"name": "A", "value": "b"}]),
]

formats = FormatChecker(formats=())
for bits in (16, 32, 64):
    formats.checks(f"uint{bits}")(lambda value, end=2**bits: value is None or value < end)


@functools.cache
def validator(name: str, member: str) -> Draft202012Validator:
    schema = {**DEFS[name]["properties"][member], "$defs": DEFS}
    return Draft202012Validator(schema, format_checker=formats)


def accepts(name: str, member: str, value: Any) -> bool:
    """Return whether the schema has a receiver accept `value`, perhaps as if it were absent."""
    schema = DEFS[name]["properties"][member]
    return (
        bool(schema.get(ON_ERROR))
        or (bool(schema.get(SKIP)) and isinstance(value, list))
        or (bool(schema.get(ON_NULL)) and value is None)
        or validator(name, member).is_valid(value)
    )


@each_case(("model", "name"), MODELS)
def test_each_member_accepts_the_values_that_the_schema_has_it_accept(model, name):
    valid = sample(DEFS[name])
    tag = model.__struct_config__.tag_field
    if tag is not None:
        valid[tag] = model.__struct_config__.tag
    decode(json.dumps(valid).encode(), model)
    for field in fields_of(model):
        if (name, field.wire_name) in RAW:
            continue
        for value in VALUES:
            line = json.dumps({**valid, field.wire_name: value}).encode()
            if accepts(name, field.wire_name, value):
                decode(line, model)
                continue
            with pytest.raises(RpcError, match=rf"params\.{field.wire_name}") as caught:
                decode(line, model)
            assert caught.value.code == -32602


@each_case("method", [name for name in {**REQUESTS, **NOTIFICATIONS} if name[0] != "_"])
def test_methods_of_the_schema_are_served_with_its_params(method):
    suffix = "Request" if method in REQUESTS else "Notification"
    served = REQUESTS.get(method) or NOTIFICATIONS[method]
    assert (served.params, definition_of(method, suffix)) in MODELS


def names(definition: dict) -> set[str]:
    return {option["const"] for option in definition["oneOf"]}


def test_enumerations_agree_with_the_schema():
    assert set(session.ToolKind.__args__) == names(DEFS["ToolKind"])
    assert set(session.ToolCallStatus.__args__) == names(DEFS["ToolCallStatus"])


def test_tags_agree_with_the_schema():
    for union, structs in (
        ("ToolCallContent", (session.Content, session.Diff, session.Terminal)),
        ("SessionUpdate", (session.ToolCall, session.ToolCallUpdate)),
    ):
        tag_field = DEFS[union]["discriminator"]["propertyName"]
        tags = {
            option["properties"][tag_field]["const"]: option["allOf"][0]["$ref"].split("/")[-1]
            for option in DEFS[union]["oneOf"]
        }
        for struct in structs:
            config = struct.__struct_config__
            assert config.tag_field == tag_field
            assert tags[config.tag] == struct.__name__


def test_every_type_of_the_schema_is_compared_or_excluded():
    checked = {model for model, _ in MODELS}
    for module in (agent, initialize, session, terminal):
        for name, value in vars(module).items():
            if name in DEFS and isinstance(value, type):
                assert value in checked, name


def test_error_codes_agree_with_the_schemas():
    options = DEFS["ErrorCode"]["anyOf"] + V2_DEFS["ErrorCode"]["anyOf"]
    codes = {option["const"] for option in options if "const" in option}
    own = {
        value
        for name, value in vars(jsonrpc).items()
        if name.isupper() and name != "MESSAGE_BYTES_MAX"
    }
    assert own == codes
