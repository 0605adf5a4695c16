"""One child on one PTY: spawn, resize, reap, kill the whole tree.

This file imports nothing: the fork server runs from this folder and must stay small.
"""
