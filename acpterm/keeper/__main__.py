"""The keeper process: `python -I -S …/acpterm/keeper/__main__.py MODE …`; see `main`."""

import sys

if __name__ == "__main__":
    # Started by its path and isolated, so that site-packages is neither searched nor imported.
    sys.path.append(__file__.rsplit("/", 3)[0])
    from acpterm.keeper.process.main import main

    main(sys.argv[1:])
