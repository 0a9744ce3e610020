"""data.html: what became of the data of a run before training, one self-contained file from its data.json."""

from pathlib import Path

from eval import number_format
from eval.comparison import settings
from eval.data_section import data_section
from eval.pages import environment
from eval.run_record import load_run


def write_data(run_dir: Path) -> Path:
    """Write data.html, funnel.csv and the figure (PNG and SVG) into a run's directory; the path of the page.

    Raises ValueError where data.json is missing or has no funnel.
    """
    record = load_run(run_dir, "data.json")
    section = data_section(run_dir, record)
    if section is None:
        raise ValueError(f"{run_dir / 'data.json'} has no funnel; run `make data` again")
    template = environment().get_template("data.html.j2")
    path = run_dir / "data.html"
    shown = {
        "config": settings({record.name: record.config}),
        "environment": settings({record.name: record.environment}),
    }
    text = template.render(record=record, data=section, n=number_format, **shown)
    path.write_text(text, encoding="utf-8")
    return path
