"""The providers of hosts that are reached by ssh: programs run there, over OpenSSH's client.

`scripts` is what runs there, `control` the channel for requests to it.
"""
