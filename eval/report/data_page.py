"""The page data.html, which shows how the data of a run was cleaned. It is one self-contained file from data.json."""

from pathlib import Path

from eval import number_format
from eval.records.run_record import load_run
from eval.report.comparison import settings
from eval.report.sections.data import data_section
from eval.report.templating import environment


def write_data(run_dir: Path) -> Path:
    """Write data.html, funnel.csv and the figure (PNG and SVG) into a run's directory, and return the page's path.

    Raises ValueError if data.json is missing or has no funnel.
    """
    record = load_run(run_dir, "data.json")
    section = data_section(run_dir, record)
    if section is None:
        raise ValueError(f"{run_dir / 'data.json'} has no funnel; run `make data` again")
    template = environment().get_template("data.html.j2")
    path = run_dir / "data.html"
    text = template.render(
        record=record,
        data=section,
        n=number_format,
        config=settings({record.name: record.config}),
        environment=settings({record.name: record.environment}),
    )
    path.write_text(text, encoding="utf-8")
    return path
