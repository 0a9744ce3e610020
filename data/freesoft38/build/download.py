"""Fetches the pinned packages, by apt or from a mirror, and checks them; unpacks apt's description indexes."""

import csv
import hashlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TIMEOUT = 60


class Package(NamedTuple):
    """A package of packages.tsv. source: the part of the corpus it is for; path: its file below a mirror's root."""

    source: str
    name: str
    version: str
    sha256: str
    path: str

    @property
    def file_name(self) -> str:
        """The name under which the package is kept, and by which packages are sorted."""
        return Path(self.path).name


def pinned_packages(table: Path) -> list[Package]:
    """Return the packages of a table like packages.tsv, by file name, as the original was sorted."""
    with table.open(encoding="utf-8", newline="") as stream:
        packages = [Package(**row) for row in csv.DictReader(stream, delimiter="\t")]
    return sorted(packages, key=lambda package: package.file_name)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(url: str, path: Path) -> None:
    """Copy a URL to a file, which appears when it is complete."""
    if not url.startswith(("http://", "https://", "file://")):
        raise ValueError(f"--mirror: {url} must begin with https://, http:// or file://")
    partial = path.with_name(f"{path.name}.partial")
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, partial.open("wb") as stream:
        shutil.copyfileobj(response, stream)
    partial.rename(path)


def run_apt(arguments: Sequence[str], folder: Path) -> None:
    """Run apt-get, which takes the files from the machine's own sources."""
    try:
        subprocess.run(["apt-get", "--quiet", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        raise ValueError("apt-get is not installed; give a Debian mirror by --mirror URL") from None


def fetch_packages(packages: Iterable[Package], cache: Path, mirror: str | None) -> dict[str, list[Path]]:
    """Return the files of the packages by source, after fetching those that the cache lacks.

    Raises ValueError for a file whose SHA-256 is not the pinned one, and removes it.
    """
    cache.mkdir(parents=True, exist_ok=True)
    paths: dict[str, list[Path]] = {}
    packages = list(packages)
    missing = [package for package in packages if not (cache / package.file_name).exists()]
    for package in missing:
        if mirror:
            fetch(f"{mirror.rstrip('/')}/{package.path}", cache / package.file_name)
    if missing and not mirror:
        fetch_by_apt(missing, cache)
    for package in packages:
        path = cache / package.file_name
        if sha256(path) != package.sha256:
            path.unlink()
            raise ValueError(f"{package.file_name} is not the pinned file (SHA-256 {package.sha256}); it was removed")
        paths.setdefault(package.source, []).append(path)
    return paths


def fetch_by_apt(packages: Sequence[Package], cache: Path) -> None:
    """Download pinned versions by apt. apt writes the epoch of a version into the file name, mirrors do not."""
    remedy = "say --mirror URL of an archive that keeps old versions, or run `apt-get update`"
    for package in packages:
        try:
            run_apt(["download", f"{package.name}={package.version}"], cache)
        except subprocess.CalledProcessError:
            raise ValueError(f"apt does not know {package.name}={package.version}; {remedy}") from None
        name, version, ending = package.file_name.split("_", 2)
        with_epoch = cache / f"{name}_{package.version.replace(':', '%3a')}_{ending}"
        if with_epoch.exists() and package.version != version:
            with_epoch.rename(cache / package.file_name)
