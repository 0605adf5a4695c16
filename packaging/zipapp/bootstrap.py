"""The `__main__` of acpterm.pyz: unpack acpterm once, and execute it.

Extension modules cannot be imported from a zip file, and acpterm executes its own Python again for
the keeper and the worker. So the first run unpacks `packages.zip` into a virtual environment in the
user's cache directory. Every run executes that environment's Python.

The environment's directory is complete or does not exist: it is unpacked under another name, and
then renamed. Its name has a hash of the contents, and of the Python that runs it. Directories of
other versions remain, since a daemon may be using them.

`build.py` replaces BUILD. The archive has only two members, because Python reads the list of
members at each start.
"""

import os
import sys

BUILD = "@BUILD@"


def main():
    """Replace this process by acpterm, with the same arguments."""
    if sys.version_info < (3, 11):
        sys.exit("acpterm.pyz needs Python 3.11 or newer; this is %d.%d" % sys.version_info[:2])
    try:
        directory = _environment()
    except OSError as error:
        sys.exit(f"acpterm.pyz: cannot unpack: {error}; set XDG_CACHE_HOME to a directory of yours")
    python = os.path.join(directory, "bin", "python3")
    os.execv(python, [python, "-P", "-m", "acpterm", *sys.argv[1:]])


def _environment():
    """Return the path of the virtual environment; create it if it does not exist."""
    base = os.path.realpath(sys.executable)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.path.join(cache, "acpterm")
    # Not hash(), which differs in each process.
    interpreter = base.strip(os.sep).replace("%", "%25").replace(os.sep, "%")
    directory = os.path.join(cache, f"{BUILD}-{interpreter}")
    if not os.path.exists(directory):
        os.makedirs(cache, 0o700, exist_ok=True)
    _check_owner(cache)
    if not os.path.exists(directory):
        _unpack(base, cache, directory)
    return directory


def _check_owner(cache):
    """Raise `PermissionError` if another user can write to the directory."""
    found = os.stat(cache)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{cache} belongs to another user, or others can write to it")


def _unpack(base, cache, directory):
    import io
    import shutil
    import tempfile
    import zipfile

    tags = {"any", f"py3-{_machine()}", f"cp3{sys.version_info[1]}-{_machine()}"}
    temporary = tempfile.mkdtemp(dir=cache, prefix=".unpacking-")
    try:
        version = "%d.%d" % sys.version_info[:2]
        packages = os.path.join(temporary, "lib", f"python{version}", "site-packages")
        with zipfile.ZipFile(io.BytesIO(__loader__.get_data("packages.zip"))) as archive:
            found = {name.partition("/")[0] for name in archive.namelist()}
            if not tags <= found:
                offered = ", ".join(sorted(tag for tag in found if tag.startswith("cp")))
                sys.exit(f"acpterm.pyz is not for Python {version} on {_machine()}: {offered}")
            for name in archive.namelist():
                tag, _, path = name.partition("/")
                if tag in tags:
                    target = os.path.join(packages, path)
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as file:
                        shutil.copyfileobj(source, file)
        os.mkdir(os.path.join(temporary, "bin"))
        os.symlink(base, os.path.join(temporary, "bin", "python3"))
        with open(os.path.join(temporary, "pyvenv.cfg"), "w") as file:
            file.write(f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\n")
        try:
            os.rename(temporary, directory)
        except OSError:
            # Another process has created the directory meanwhile.
            if not os.path.exists(directory):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _machine():
    system = os.uname()
    return f"{system.sysname}-{system.machine}".lower()


main()
