"""`acpterm setup`: writes acpterm into the settings of agents, and removes it again.

- `agents`: the agents, where their settings are, and the form of an entry;
- `targets`: what is written: MCP entries, proxy entries, the skill;
- `launch`: the command by which an agent starts acpterm;
- `document`: the text of a settings file, changed by `json_edit` (with `json_parser`) and
  `toml_edit`;
- `plan`: a change of one file, which is shown first and carried out later; `files`: reads and
  replaces the file; `journal`: records the change for `--undo`;
- `overview`: which agents are installed, and what is set up in them;
- `errors`: the error of all these modules.
"""
