import subprocess
import sys
from pathlib import Path

LIGHT = (
    "pipeline.corpus.config",
    "pipeline.corpus.languages",
    "pipeline.corpus.manifest",
    "pipeline.corpus.fetched",
    "pipeline.dag.corpus",
    "pipeline.vocab.config",
    "pipeline.vocab.symbols",
)


def test_modules_of_the_command_line_import_nothing_heavy() -> None:
    program = f"import sys, {', '.join(LIGHT)}\nprint(*sorted(m for m in sys.modules if '.' not in m))"
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "yaml" in loaded
    assert not loaded & {"numpy", "pyarrow", "datasets", "sentencepiece", "torch", "hydra", "omegaconf"}
