"""The local files of an entry of a manifest, from a directory, a URL or an archive."""

import hashlib
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from pipeline.corpus.manifest import FileEntry, is_url
from pipeline.corpus.sources.archives import extract
from pipeline.corpus.sources.download import Patience, download
from pipeline.files import file_sha256
from pipeline.spelling import nearest_names


def locate(entry: FileEntry, files: Path, cache: Path, *, patience: Patience | None = None) -> list[Path]:
    """Return the paths of the files of an entry, in its order, after checking the checksums that are given.

    files: directory of relative paths. A file here with the name of a URL's is taken instead of the URL.
    cache: directory that keeps downloads and files from archives.
    Raises ValueError for a file that is missing or has another checksum, for a server that does not answer, and for an
    archive that cannot be read or trusted.
    """
    digests = entry.sha256 or ("",) * len(entry.paths)
    if entry.archive:
        if not entry.paths:
            raise ValueError(f"files: archive {entry.archive} without a path; name the files that it holds")
        archive = local_path(entry.archive, files, cache, patience=patience)
        paths = extract(archive, entry.paths, cache / "unpacked" / _identity(archive))
        where = f"{archive}: member "
    else:
        pairs = zip(entry.paths, digests, strict=True)
        paths = [local_path(path, files, cache, sha256=digest, patience=patience) for path, digest in pairs]
        where = ""
    for name, path, digest in zip(entry.paths, paths, digests, strict=True):
        if digest and (actual := file_sha256(path)) != digest:
            raise ValueError(
                f"{where}{name if where else path}: sha256 is {actual} where the manifest says {digest}; "
                "fetch the file again, or correct the manifest if the change is meant"
            )
    return paths


def local_path(
    path: str, files: Path, cache: Path, *, name: str = "", sha256: str = "", patience: Patience | None = None
) -> Path:
    """Return the file of a path below `files`, or of a URL, which is downloaded once.

    name: name of the downloaded file, by default as in the URL.
    Raises ValueError if the file does not exist, or a server does not give it.
    """
    if not is_url(path):
        return _existing(files / path)
    url = urlsplit(path)
    last = PurePosixPath(unquote(url.path)).name
    if url.scheme == "file":
        if url.netloc not in ("", "localhost"):
            raise ValueError(f"files: {path} names the host {url.netloc}; write three slashes, as file:///data/de.txt")
        return _existing(Path(url2pathname(url.path)))
    if not url.netloc or last in ("", ".."):
        raise ValueError(f"files: {path} names no file of a server; correct it")
    if (files / last).is_file():
        return files / last
    target = cache / "downloads" / hashlib.sha256(path.encode()).hexdigest()[:16] / (name or last)
    advice = f"where there is no network, fetch the file elsewhere and put it at {files / last}"
    return download(path, target, sha256=sha256, patience=patience, advice=advice)


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    fault = "is a directory" if path.is_dir() else "does not exist"
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = nearest_names(path.name, names, most=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near and near[0] != path.name else ""
    if not path.parent.exists():
        hint = f"there is no directory {path.parent}: correct corpus.path or corpus.add, "
    raise ValueError(f"{path} {fault}; {hint}put the file there or take it out of the manifest")


def _identity(archive: Path) -> str:
    """Return a name for the content of an archive. It changes when the archive is replaced."""
    stat = archive.stat()
    text = f"{archive.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
