"""What commands may lose: changes, commits, data, secrets; by kind, as a table.

`find.losses_of` returns the losses that the words of one command suggest. Some are certain; others
hold only if a fact does (`loss.Need`), such as that a file exists. This package does no I/O: a host
finds the facts (`host.loss_facts`), and the judge is asked again with them. `table` has what the
words alone decide; `git` and `files` read operands.
"""
