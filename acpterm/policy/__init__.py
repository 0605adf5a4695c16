"""The policy: what agents may run, the questions about it to the user, and the record of it.

- `judge`: the level of a command, and the decision on it (`search`, `parts`, `decision`, `prefix`);
- `syntax`, `words`, `wrappers`, `arguments`: what the search knows about shells and programs;
- `rules`: the user's prefix rules;
- `questions`, `approvals`, `decisions`: questions to the user, and answers for a session;
- `audit`: the record of what happened.
"""
