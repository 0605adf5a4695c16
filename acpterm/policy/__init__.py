"""The policy: what agents may run, questions to the user about it, and the record of it.

- `judge`: the level of a command, and the decision on it (`search`, `parts`, `decision`, `prefix`);
- `syntax`, `words`, `wrappers`, `arguments`: what the search knows about shells and programs;
- `rules`: the user's prefix rules;
- `approvals`: the pending questions, and the clients that ask the user;
- `questions`: a question and its answer; `decisions`: answers for the rest of a session;
- `audit`: the record of what happened.
"""
