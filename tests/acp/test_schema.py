"""The wire types agree with the schema in every field."""

import pytest

from acpterm import acp
from acpterm.acp.schema import fields_of
from tests.acp.validate import DEFS

MODELS = [
    (acp.EnvVariable, "EnvVariable"),
    (acp.CreateTerminalRequest, "CreateTerminalRequest"),
    (acp.CreateTerminalResponse, "CreateTerminalResponse"),
    (acp.TerminalRequest, "TerminalOutputRequest"),
    (acp.TerminalRequest, "WaitForTerminalExitRequest"),
    (acp.TerminalRequest, "KillTerminalRequest"),
    (acp.TerminalRequest, "ReleaseTerminalRequest"),
    (acp.TerminalExitStatus, "TerminalExitStatus"),
    (acp.TerminalOutputResponse, "TerminalOutputResponse"),
    (acp.WaitForTerminalExitResponse, "WaitForTerminalExitResponse"),
    (acp.Empty, "KillTerminalResponse"),
    (acp.Empty, "ReleaseTerminalResponse"),
    (acp.InitializeRequest, "InitializeRequest"),
    (acp.FileSystemCapabilities, "FileSystemCapabilities"),
    (acp.ClientCapabilities, "ClientCapabilities"),
    (acp.Implementation, "Implementation"),
    (acp.Content, "Content"),
    (acp.Diff, "Diff"),
    (acp.Terminal, "Terminal"),
    (acp.ToolCallLocation, "ToolCallLocation"),
    (acp.ToolCall, "ToolCall"),
    (acp.ToolCallUpdate, "ToolCallUpdate"),
    (acp.SessionNotification, "SessionNotification"),
    (acp.CancelNotification, "CancelNotification"),
    (acp.AuthMethod, "AuthMethodAgent"),
    (acp.SessionCapabilities, "SessionCapabilities"),
    (acp.AgentCapabilities, "AgentCapabilities"),
    (acp.InitializeResponse, "InitializeResponse"),
    (acp.NewSessionResponse, "NewSessionResponse"),
    (acp.PromptResponse, "PromptResponse"),
    (acp.PermissionOption, "PermissionOption"),
    (acp.RequestPermissionRequest, "RequestPermissionRequest"),
    (acp.ReadTextFileRequest, "ReadTextFileRequest"),
    (acp.WriteTextFileRequest, "WriteTextFileRequest"),
]

# Members that the models omit, since they do not concern a terminal host.
NOT_MODELLED = {
    "ClientCapabilities": {"session", "auth", "elicitation"},
    "AgentCapabilities": {"promptCapabilities", "mcpCapabilities", "auth"},
    "SessionCapabilities": {"list", "delete", "close"},
    "NewSessionResponse": {"modes", "configOptions"},
}


@pytest.mark.parametrize(("model", "name"), MODELS, ids=[name for _, name in MODELS])
def test_fields_agree_with_the_schema(model, name):
    definition = DEFS[name]
    properties = definition["properties"]
    own = {field.wire_name: field for field in fields_of(model)}
    assert own.keys() == properties.keys() - NOT_MODELLED.get(name, set())
    required = {wire_name for wire_name, field in own.items() if field.required}
    assert required == set(definition.get("required", []))
    for wire_name, field in own.items():
        flags = {key for key, value in properties[wire_name].items() if key[:2] == "x-" and value}
        own_flags = set()
        if field.schema.default_on_error:
            own_flags.add("x-deserialize-default-on-error")
        if field.schema.skip_invalid_items:
            own_flags.add("x-deserialize-skip-invalid-items")
        assert own_flags == flags, wire_name


def names(definition: dict) -> set[str]:
    return {option["const"] for option in definition["oneOf"]}


def test_enumerations_agree_with_the_schema():
    assert set(acp.ToolKind.__args__) == names(DEFS["ToolKind"])
    assert set(acp.ToolCallStatus.__args__) == names(DEFS["ToolCallStatus"])


def test_tags_agree_with_the_schema():
    for union, structs in (
        ("ToolCallContent", (acp.Content, acp.Diff, acp.Terminal)),
        ("SessionUpdate", (acp.ToolCall, acp.ToolCallUpdate)),
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
    for name in acp.__all__:
        if name in DEFS and isinstance(getattr(acp, name), type):
            assert getattr(acp, name) in checked, name


def test_error_codes_agree_with_the_schema():
    from acpterm import jsonrpc

    codes = {option["const"] for option in DEFS["ErrorCode"]["anyOf"] if "const" in option}
    own = {
        value
        for name, value in vars(jsonrpc).items()
        if name.isupper() and name != "LINE_BYTES_MAX"
    }
    assert own == codes
