"""The providers of hosts that are reached by ssh: programs run there, over OpenSSH's client.

- `provider`: the provider of one host; `program`: the remote program of one terminal;
- `connections`: all connections to one host; `master`: one master connection of ssh;
- `control`: the channel for requests to the scripts on the other host;
- `scripts`: the scripts that run there; `wait_scripts`: those that run the program of a terminal;
- `job`: the description of a program that these scripts read;
- `remote_keeper`: use of acpterm's daemon there, which keeps terminals if the connection is lost;
  `keeper_link`: one connection to it.
"""
