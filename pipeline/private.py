"""Directories for what a later command runs as a program: a pickle, compiled code."""

import os
import stat
from pathlib import Path


def private_directory(path: Path, setting: str) -> Path:
    """Make a directory that this user alone may enter, or take the one that is there; its path.

    setting: the environment variable by which a user chooses another place, for the message.
    Raises ValueError if somebody else owns the directory, if everybody may write to it, or if it is a link.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise ValueError(
            f"{path} must be a directory of your own to which not everybody may write, since programs are read from "
            f"it; remove it, or set {setting} to another directory of yours"
        )
    return path
