"""`acpterm proxy`: relays between an editor and its agent, and gives the agent terminals.

- `run`: starts and ends everything: waits for the editor, connects to the host, starts the agent.
- `relay`: decides for each message whether to pass it on, change it, or send it to the host.
- `lines`: reads the lines of the editor or the agent from a stream.
- `capabilities`: parses and extends the capabilities in `initialize`.
- `sessions`: notifies the other modules of the sessions that the editor opens and closes.
- `chat`: answers prompts that begin with `/terminal`. `chat_prompt`: parses such prompts, and adds
  `/terminal` to the commands that the editor offers. `chat_runner`: does what a prompt requests.
- `editor_questions`: asks the user, through the editor, whether a command may run.
- `editor_requests`: sends other requests of the proxy itself to the editor.
- `presenter`: the interface of the two presenters, which translate updates for the editor.
- `terminal_presenter`: for an editor that shows terminals of the agent (`_meta.terminal_output`).
- `text_presenter`: for any other editor, as text. `display`: the text of one terminal.

"The host's terminals" are those that acpterm runs for the agent. "The agent's own terminals" are
those that the agent runs itself, and whose output it reports in its updates.
"""
