"""The provider `ssh`: programs on another host, over OpenSSH's client.

- `provider`: the provider of one place; `program`: the remote program of one terminal;
- `connections`: the master connections to a host, and how many sessions each has;
- `master`: one master connection; `control`: the channel to the other host; `scripts`: what runs
  there; `job`: what it is given;
- `keeper`: the daemon there, which keeps terminals if the connection is lost; `keeper_link`: a
  connection to it.
"""
