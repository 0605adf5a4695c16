"""The providers of hosts that are reached by ssh: programs run there, over OpenSSH's client.

`scripts` and `wait_scripts` are what runs there, `control` the channel for requests to it.
"""
