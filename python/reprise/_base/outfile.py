# SPDX-License-Identifier: MIT
"""Files that the package writes: whole or not at all."""

import errno
import os
import stat
import tempfile


def write_file(path, contents):
    """Writes bytes under a name of their own in the same folder, and renames the file when all is there.

    What was there keeps its mode, and its owner where that may be given. A link is followed to where it
    leads. What is no file, and what is open already, is written to as it is.

    Raises:
        OSError: It cannot be written. What was there is as it was.
    """
    path = os.fspath(path)
    if os.path.realpath(os.path.dirname(path)).split(os.sep)[1:2] in (["dev"], ["proc"]) or _is_no_file(path):
        with open(path, "wb") as file:
            file.write(contents)
        return
    path = os.path.realpath(path)
    old = os.stat(path) if os.path.exists(path) else None
    if old and not os.access(path, os.W_OK):  # a file that says "do not write" is not replaced
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".reprise-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            _set_mode(file.fileno(), old)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _is_no_file(path):
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def _set_mode(file, old):
    """As the file that is replaced, or as a new one."""
    if not old:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(file, 0o666 & ~mask)
        return
    allowed = 0o777
    try:
        os.fchown(file, old.st_uid, old.st_gid)
        allowed = 0o7777
    except PermissionError:
        pass  # nor may it run as the owner then
    os.fchmod(file, old.st_mode & allowed)
