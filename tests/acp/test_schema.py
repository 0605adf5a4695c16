"""The wire types agree with the schema in every field."""

from acpterm.acp import agent, initialize, session, terminal
from acpterm.acp.lenient import fields_of
from tests.acp.validate import DEFS
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
    "ClientCapabilities": {"session", "auth", "elicitation"},
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


def test_error_codes_agree_with_the_schema():
    from acpterm import jsonrpc

    codes = {option["const"] for option in DEFS["ErrorCode"]["anyOf"] if "const" in option}
    own = {
        value
        for name, value in vars(jsonrpc).items()
        if name.isupper() and name != "MESSAGE_BYTES_MAX"
    }
    assert own == codes
