"""Files of Debian packages are read in memory, without links, devices and names that lead out of the package."""

import io
import lzma
import tarfile

import pytest

from data.freesoft38.build import deb


def package(path, members, name="data.tar.xz"):
    """Write a package with the given tar members: (name, content) or (name, content, type)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for inner, content, *kind in members:
            info = tarfile.TarInfo(inner)
            info.size, info.type = len(content), kind[0] if kind else tarfile.REGTYPE
            info.linkname = "/etc/hostname" if kind else ""
            archive.addfile(info, io.BytesIO(content))
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, lzma.compress(data.getvalue()))]
    content = deb.AR_MAGIC
    for part, body in parts:
        content += f"{part:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    path.write_bytes(content)
    return path


def test_regular_files_are_read(tmp_path):
    """Only accepted files are read, and their names lose ./"""
    path = package(tmp_path / "a.deb", [("./usr/a.txt", b"A"), ("./usr/b.bin", b"B")])
    assert list(deb.read_files(path, lambda name: name.endswith(".txt"))) == [("usr/a.txt", b"A")]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_not_read(tmp_path, kind):
    """A link would name a file of the reader's machine."""
    path = package(tmp_path / "a.deb", [("./usr/a.txt", b"", kind), ("./usr/b.txt", b"B")])
    assert list(deb.read_files(path, lambda name: True)) == [("usr/b.txt", b"B")]


@pytest.mark.parametrize("name", ["../a.txt", "./usr/../../a.txt", "/etc/a.txt"])
def test_names_that_lead_out_are_errors(tmp_path, name):
    """Such a package is not one of Debian's."""
    path = package(tmp_path / "a.deb", [(name, b"A")])
    with pytest.raises(ValueError, match="leads out of the package"):
        list(deb.read_files(path, lambda name: True))


def test_large_members_are_errors(tmp_path, monkeypatch):
    """A member beyond the limit is refused before it is read."""
    monkeypatch.setattr(deb, "MAX_MEMBER", 3)
    path = package(tmp_path / "a.deb", [("./a", b"long")])
    with pytest.raises(ValueError, match="larger than 3 bytes"):
        list(deb.read_files(path, lambda name: True))


def test_other_files_are_errors(tmp_path):
    """The error names a file that is no package, has no data, or has an unknown compression."""
    (tmp_path / "a.deb").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="not a Debian package"):
        deb.data_archive(tmp_path / "a.deb")
    with pytest.raises(ValueError, match=r"no data\.tar"):
        deb.data_archive(package(tmp_path / "b.deb", [], "other.tar"))
    with pytest.raises(ValueError, match=r"data\.tar\.zst cannot be read"):
        list(deb.read_files(package(tmp_path / "c.deb", [], "data.tar.zst"), lambda name: True))
