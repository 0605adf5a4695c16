"""The policy: what agents may run, what the user is asked, and the record of it.

- `syntax`, `wrappers`, `judge`: the level of a command, and the decision on it;
- `rules`: the user's prefix rules;
- `approvals`: questions to the user;
- `audit`: the record of what happened.
"""
