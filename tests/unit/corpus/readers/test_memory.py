import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.corpus.readers.written import COMPRESSIONS, FORMATS

_ROW = ("Ein Satz, wie er vorkommt, mit Umlauten: äöü. " * 2, "A sentence as they come, of some length. " * 2)
_ROWS = 15_000  # 3 MB
_READ = """
import sys
from pathlib import Path
from tests.unit.corpus.readers.written import PAIR
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
paths, format_ = [Path(path) for path in sys.argv[2:]], sys.argv[1]
names = tuple(path.name for path in paths)
entry = FileEntry(split="train", format=format_, paths=names, pair=None if format_ == "multiway_tsv" else PAIR)
rows = sum(batch.num_rows for batch in open_table(paths, entry, {}).batches)
print(rows, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def _peak(paths: list[Path], format_: str, rows: int) -> float:
    """Return the peak of the memory of a process that reads, in MiB."""
    command = [sys.executable, "-c", _READ, format_, *map(str, paths)]
    result = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True)
    read, peak = result.stdout.split()
    assert int(read) == rows
    return int(peak) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize(
    ("format_", "suffix"), [*((name, "") for name in (*FORMATS, "aligned")), *(("tsv", s) for s in COMPRESSIONS if s)]
)
def test_memory_is_flat_in_the_file(tmp_path: Path, format_: str, suffix: str) -> None:
    """12 times the rows (30 MB) need at most 12 MiB more, for memory that allocators keep."""
    peaks = []
    for times in (1, 12):
        rows = [_ROW] * (_ROWS * times)
        paths = [tmp_path / f"{times}-{side}{suffix}" for side in ("a", "b")][: 2 if format_ == "aligned" else 1]
        for side, path in enumerate(paths):
            text = (
                "".join(f"{row[side]}\n" for row in rows).encode() if format_ == "aligned" else FORMATS[format_](rows)
            )
            path.write_bytes(COMPRESSIONS[suffix](text))
        peaks.append(_peak(paths, format_, len(rows)))
    assert peaks[1] < peaks[0] + 12, peaks
