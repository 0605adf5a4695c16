"""The policy: which commands agents may run, questions about them to the user, and the audit log.

Judgement of a command:

- `judge`: the entry point, which returns a verdict; `verdict`: the types of a verdict and of its
  parts;
- `classifier`: finds all commands that a command executes, and the level of each; `parts`: one of
  these commands, and how lists and rules match it;
- `decision`: the decision on a command, by lists, rules and the profile; `rules`: the user's prefix
  rules; `prefix`: the prefix of a command that the answer "always allow" allows;
- `syntax`, `words`, `wrappers`, `arguments`: knowledge about shells and programs. The lists of safe
  programs and dangerous patterns are in `config.profiles`. `classifier` has names of dangerous
  programs for two cases: a program's name is a pattern such as `/bin/r?`, or a line is too long to
  be judged.

Questions to the user:

- `questions`: the types of a question and its answer; `approvals`: the pending questions;
- `session_decisions`: answers that count for the rest of a session.

`audit` is the audit log.
"""
