"""`acpterm setup`: writes acpterm into the settings of agents, and removes it again.

- `agents`: the agents, where their settings are, and the form of an entry;
- `targets`: what is written: MCP entries, proxy lines, the skill;
- `launch`: the command by which an agent starts acpterm;
- `document`: the text of settings, changed by `json_edit` and `toml_edit`, with `json_parser`;
- `plan`: a change of one file, shown first and carried out later; `files`: replaces it; `journal`:
  records it for `--undo`;
- `overview`: what is installed and set up.
"""
