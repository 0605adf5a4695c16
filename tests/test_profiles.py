"""Profiles: the built-in ones, those of the settings file, and the errors for invalid ones."""

import pytest

from acpterm.config import ConfigError, load
from acpterm.config.profiles import BUILTIN, Limits, resolve


@pytest.fixture
def settings(tmp_path):
    """Return a function that writes a text to a settings file, and loads the settings from it."""

    def read(text: str):
        path = tmp_path / "config.toml"
        path.write_text(text)
        return load(str(path), environ={})

    return read


def test_default_profile_asks_about_dangerous_commands_only(settings):
    profile = BUILTIN[settings("").profile]
    assert (profile.safe, profile.unknown, profile.dangerous) == ("allow", "allow", "ask")
    assert profile.unattended == "wait"


def test_pool_has_the_limits_of_a_pty_pool():
    assert BUILTIN["pool"].limits == Limits(agent_terminals=5, starts_per_minute=3, idle=300.0)


def test_profile_inherits_missing_values_and_limits_from_its_base(settings):
    found = resolve(
        settings(
            """
            [profiles.ci]
            base = "pool"
            provider = "bubblewrap"
            [profiles.ci.limits]
            idle = 5
            memory = 1000
            """
        ).profiles
    )["ci"]
    assert found.name == "ci"
    assert found.provider == "bubblewrap"
    assert found.blocked_commands == BUILTIN["pool"].blocked_commands
    assert found.limits == Limits(agent_terminals=5, starts_per_minute=3, idle=5.0, memory=1000)


def test_built_in_profile_can_be_replaced_with_itself_as_base(settings):
    found = resolve(settings('[profiles.guarded]\nunknown = "ask"\n').profiles)["guarded"]
    assert (found.unknown, found.dangerous) == ("ask", "ask")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('profile = "x"', "profile names the profile 'x', which does not exist: the profiles are"),
        ('[[profile_for]]\nprofile = "x"', "profile_for names the profile 'x'"),
        ('[profiles.a]\nbase = "x"', "profile 'x' is not defined"),
        ('[profiles.a]\nbase = "b"\n[profiles.b]\nbase = "a"', "is its own base"),
        ('[profiles.a]\nsafe = "x"', "Invalid enum value 'x' (in profiles[...].safe)"),
        ("[profiles.a.limits]\nmemroy = 1", "unknown field `memroy`"),
        ("[profiles.a.limits]\nidle = 0", "> 0"),
        ('[profiles.a]\nblocked_patterns = ["("]', "which is no regular expression"),
    ],
)
def test_invalid_profile_is_an_error_that_names_it(settings, text, message):
    with pytest.raises(ConfigError) as error:
        settings(text)
    assert message in str(error.value)
