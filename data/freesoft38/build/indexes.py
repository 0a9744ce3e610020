"""Fetches apt's indexes of package descriptions, which are not packages: by apt, or from a mirror."""

import bz2
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError

from .download import fetch, run_apt
from .sources import SUITES

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def fetch_indexes(languages: Sequence[str], cache: Path, mirror: str | None) -> Path:
    """Return a folder with the index of each suite and language as `<suite>_<language>`.

    Indexes that the cache has are kept. They are not pinned: Debian changes them, those of sid every day.
    """
    folder = cache / "descriptions"
    folder.mkdir(parents=True, exist_ok=True)
    if all((folder / f"{suite}_{language}").exists() for suite in SUITES for language in ["en", *languages]):
        return folder
    if mirror:
        fetch_from_mirror(["en", *languages], folder, mirror)
    else:
        fetch_by_apt(["en", *languages], folder, cache / "apt")
    return folder


def fetch_from_mirror(languages: Sequence[str], folder: Path, mirror: str) -> None:
    """Fetch each index from below dists/; one that a suite does not have becomes an empty file."""
    for suite in SUITES:
        for language in languages:
            target = folder / f"{suite}_{language}"
            if target.exists():
                continue
            packed = folder / f"{target.name}.bz2"
            try:
                fetch(f"{mirror.rstrip('/')}/dists/{suite}/main/i18n/Translation-{language}.bz2", packed)
            except HTTPError as error:
                if error.code != 404:
                    raise
                target.touch()
                continue
            target.write_bytes(bz2.decompress(packed.read_bytes()))
            packed.unlink()


def fetch_by_apt(languages: Sequence[str], folder: Path, state: Path) -> None:
    """Let apt fetch and verify the indexes into a state of its own, from where the machine's bookworm comes from."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Component: main"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    if not targets.stdout.strip():
        raise ValueError(
            "apt has no source for bookworm; give a Debian mirror by --mirror URL, or --without-descriptions"
        )
    archive = targets.stdout.split()[0]
    lists = state / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    sources.write_text(
        "".join(f"deb [signed-by={KEYRING}] {archive} {suite} main\n" for suite in SUITES), encoding="utf-8"
    )
    options = {
        "Dir::Etc::sourcelist": sources.resolve(),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": lists.resolve(),
        "Dir::Cache": state.resolve(),
        "Acquire::IndexTargets::deb::Packages::DefaultEnabled": "false",
        "Acquire::Languages": ",".join(languages),
        "Acquire::GzipIndexes": "false",
        "Acquire::PDiffs": "false",
        "APT::Sandbox::User": "",
    }
    run_apt(["update", *(part for key, value in options.items() for part in ("--option", f"{key}={value}"))], state)
    for suite in SUITES:
        for language in languages:
            name = f"_dists_{suite}_main_i18n_Translation-{language.replace('_', '%5f')}"
            files = [path for path in lists.iterdir() if path.name.endswith(name)]
            target = folder / f"{suite}_{language}"
            if files:
                shutil.move(files[0], target)
            else:
                target.touch()
