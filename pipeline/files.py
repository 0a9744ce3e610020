"""Files and directories: written in one step, brought to the disk, hashed, checked before use, removed."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk, so that a power cut does not lose them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do it for a directory
            raise
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Call `sync` for a directory and everything in it, or for a file."""
    for path in (directory, *directory.rglob("*")):
        if path.is_file() or (path.is_dir() and not path.is_symlink()):
            sync(path)


def remove_tree(path: Path) -> None:
    """Delete a directory and everything in it, but nothing behind a link."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    path.rmdir()


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step. On failure, as of a full disk, the old file stays and the error is raised."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, setting: str) -> None:
    """Create a directory and write into it. Raises ValueError that names the setting to change."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write to {path} ({error.strerror}); make it writable or set {setting} to another directory"
        ) from error


def check_free(path: Path, needed: int, what: str) -> None:
    """Raise ValueError for work that does not fit on the disk. needed: bytes."""
    free = shutil.disk_usage(path).free
    if free < needed:
        raise ValueError(
            f"{what} needs about {needed / 1e6:,.0f} MB of disk at {path} and {free / 1e6:,.0f} MB are free; make room "
            "or set runtime.artifacts to another disk"
        )


def private_directory(path: Path, setting: str) -> Path:
    """Make a directory that this user alone may enter, or take the existing one, and return its path.

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
