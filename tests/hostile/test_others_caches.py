"""Programs in received artifacts and in shared directories, where others may have put them, are not run."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.files import private_directory
from pipeline.model import compilation
from pipeline.tasks import JobConfig
from pipeline.tasks.jobs import _Jobs
from tests.conftest import ROOT

# It replaces the package: its index is a pickle, which is read if it exists, else made.
INDEX = """
import os, pickle
from pathlib import Path
file = Path(os.environ["MTDATA"]) / "mtdata.index.0.5.1.pkl"
if not file.exists():
    file.write_bytes(pickle.dumps({}))
INDEX = pickle.loads(file.read_bytes())
"""
ENTRY = """
class DatasetId:
    @staticmethod
    def parse(name):
        raise ValueError("the index was read")
"""
PROGRAM = """
import sys
from pathlib import Path
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.mtdata_index import open_mtdata
entry = FileEntry(split="train", format="mtdata", dataset="Own-lines-1-deu-eng")
try:
    open_mtdata(entry, Path("corpora"), Path(sys.argv[1]), {})
except ValueError as error:
    print(error)
"""


class Program:
    """An object that runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def ask_mtdata(tmp_path: Path, **environment: str) -> str:
    """Read the index, with artifacts from somebody else, and return what the command prints."""
    mark, downloads = tmp_path / "executed", tmp_path / "artifacts" / "downloads"
    (downloads / "mtdata").mkdir(parents=True)
    (downloads / "mtdata" / "mtdata.index.0.5.1.pkl").write_bytes(pickle.dumps(Program(mark)))
    package = tmp_path / "packages" / "mtdata"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("index", INDEX), ("entry", ENTRY)):
        (package / f"{name}.py").write_text(text)
    surroundings = {name: value for name, value in os.environ.items() if name not in ("MTDATA", "XDG_CACHE_HOME")}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(downloads)],
        env={**surroundings, "PYTHONPATH": f"{package.parent}:{ROOT}", "HOME": str(tmp_path / "home"), **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not mark.exists()
    return result.stdout


@pytest.mark.parametrize("setting", ["HOME", "XDG_CACHE_HOME", "MTDATA"])
def test_an_index_in_received_artifacts_is_not_read(tmp_path: Path, setting: str) -> None:
    chosen = {} if setting == "HOME" else {setting: str(tmp_path / "chosen")}
    assert "the index was read" in ask_mtdata(tmp_path, **chosen)
    below = {"HOME": "home/.cache/babelshard/mtdata", "XDG_CACHE_HOME": "chosen/babelshard/mtdata", "MTDATA": "chosen"}
    assert (tmp_path / below[setting] / "mtdata.index.0.5.1.pkl").is_file()


def test_an_index_in_a_directory_that_everybody_may_write_to_is_not_read(tmp_path: Path) -> None:
    shared = tmp_path / "home" / ".cache" / "babelshard"
    (shared / "mtdata").mkdir(parents=True)
    (shared / "mtdata" / "mtdata.index.0.5.1.pkl").write_bytes(pickle.dumps(Program(tmp_path / "executed")))
    shared.chmod(0o777)
    assert "babelshard must be a directory of your own to which not everybody may write" in ask_mtdata(tmp_path)


def test_a_private_directory_belongs_to_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = private_directory(tmp_path / "a" / "mine", "PLACE")
    assert private.stat().st_mode & 0o777 == 0o700
    assert private_directory(private, "PLACE") == private
    (tmp_path / "link").symlink_to(private)
    with pytest.raises(ValueError, match=r"link must be a directory of your own .* or set PLACE to another directory"):
        private_directory(tmp_path / "link", "PLACE")
    monkeypatch.setattr(os, "geteuid", lambda: private.stat().st_uid + 1)
    with pytest.raises(ValueError, match="mine must be a directory of your own"):
        private_directory(private, "PLACE")


def test_compiled_code_of_somebody_else_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps compiled code below /tmp, in a directory with a known name."""
    from torch._inductor.runtime import cache_dir_utils

    shared = tmp_path / "torchinductor_me"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(cache_dir_utils, "default_cache_dir", lambda: str(shared))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # torch sets it; monkeypatch restores it afterwards
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("CXX", "sh")  # any program that exists
    with pytest.raises(ValueError, match=r"torchinductor_me must be .* or set TORCHINDUCTOR_CACHE_DIR to another"):
        compilation.compile_layers(None)  # type: ignore[arg-type]


def test_results_of_jobs_that_were_received_are_not_read(tmp_path: Path) -> None:
    """Results of submitit are pickles, whose names follow from the numbers of the queue."""
    pytest.importorskip("submitit")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "4711_0_result.pkl").write_bytes(pickle.dumps(("success", Program(tmp_path / "executed"))))
    (jobs / "4711_0_log.err").touch()
    _Jobs(JobConfig(cluster="local"), jobs, "clean")
    assert [path.name for path in jobs.iterdir()] == ["4711_0_log.err"]


def test_pickles_come_from_own_processes_alone() -> None:
    """No module that reads received files (checkpoints, vocabularies, arrays, manifests) can unpickle."""
    sources = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "eval").rglob("*.py")]
    text = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sources}
    imports = re.compile(r"^\s*(import|from) (pickle|shelve|marshal)", re.MULTILINE)
    unpickling = {name for name, code in text.items() if imports.search(code)}
    # they exchange calls and results over a pipe or the folder of a job
    own = {"pipeline/tasks/__init__.py", "pipeline/tasks/call.py", "pipeline/decode/job/replica.py"}
    # it catches the error of torch's own reader of weights, which takes tensors alone
    imported = "pipeline/imports/checkpoint.py"
    assert unpickling == own | {imported}
    assert re.findall(r"pickle\.\w+", text[imported]) == ["pickle.UnpicklingError"]
    for name, code in text.items():
        unsafe_load = r"torch\.load\((?!file, map_location=\"cpu\", weights_only=True, )"
        assert not re.search(rf"{unsafe_load}|allow_pickle=True|unsafe_load|yaml\.(Full|Unsafe|)Loader", code), name
        # yaml_text makes only texts, numbers, lists and mappings, by the SafeLoader and the BaseLoader of the library
        assert name == "pipeline/corpus/yaml_text.py" or "yaml.load(" not in code, name
