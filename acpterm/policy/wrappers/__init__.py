"""Finds the commands that a command executes: those of `env`, `xargs`, `sh -c`, `sudo` or `eval`.

A program that executes other commands is a *wrapper*; `programs` is the entry point.
"""
