"""The entry point of the keeper process; `process.main` describes its arguments."""

import sys

if __name__ == "__main__":
    # The keeper is started by path in isolated mode, so that Python neither searches nor imports
    # site-packages. The package's own directory therefore has to be added here.
    sys.path.append(__file__.rsplit("/", 3)[0])
    from acpterm.keeper.process.main import main

    main(sys.argv[1:])
