"""The tables of speed and memory."""

from pathlib import Path

from bench.published.cells import Line, markdown, measurements, number, percent, rate, source, verdict


def training() -> str:
    lines = []
    for path, row in measurements("train", section="mfu", processes="2"):
        size = f"{float(row['parameters']) / 1e6:.1f} M"
        shares = (percent(row["mfu"]), f"{float(row['useful']):.3f}", number(f"{1e3 * float(row['peak_tflops'])}"))
        lines.append((f"{row['model']}, {row['dtype']}", size, rate(row), *shares, source(path, row)))
    header = ("model", "parameters", "target tokens/s", "MFU", "useful / executed", "peak, GFLOP/s", "row")
    return markdown(header, lines)


def training_targets() -> str:
    """Return the table of the rows of our own training that have a target."""
    lines = []
    names = {"scaling": "two processes against one", "overhead": "outside forward, backward, step", "mfu": "MFU"}
    for section, name in names.items():
        for path, row in measurements("train", section=section, processes="2"):
            value = number(row["measured"], 3)
            lines.append((name, f"{row['model']}, {row['dtype']}", value, verdict(row), source(path, row)))
    return markdown(("what", "model", "measured", "target", "row"), [line for line in lines if line[2]])


def peers_in_training() -> str:
    lines = []
    for path, row in measurements("train", section="peers"):
        way = f"{row['processes']} x {row['threads']}"
        cells = (way, rate(row), number(row["measured"], 2), verdict(row), source(path, row))
        lines.append((f"{row['model']}: {row['variant']}", *cells))
    return markdown(("model and system", "processes x threads", "target tokens/s", "ours / it", "target", "row"), lines)


def decoding() -> str:
    lines = []
    for path, row in measurements("decode"):
        memory = f"{float(row['rss']) / 1e6:,.0f}" if row["rss"] else ""
        cells = (rate(row), number(row["measured"], 2), percent(row["identical"]), memory)
        lines.append((f"{row['model']}: {row['system']}, {row['precision']}", *cells, source(path, row)))
    return markdown(("model and system", "tokens/s", "ours / it", "identical", "peak MB", "row"), lines)


def peers() -> str:
    """Return how many times as fast as each peer ours is, in the comparison that is best for the peer."""
    best: dict[tuple[str, ...], tuple[Path, Line]] = {}
    for benchmark, task, columns in (
        ("train", "training", ("model", "dtype", "variant")),
        ("data", "", ("section", "variant")),
        ("decode", "decoding", ("model", "precision", "system")),
    ):
        for path, row in measurements(benchmark):
            key = (path.stem, task, *(row[column] for column in columns))
            if row.get("section", "peers") not in ("peers", "cleaning", "encoding") or key[-1].startswith("ours"):
                continue
            if row["measured"] and (key not in best or float(row["measured"]) < float(best[key][1]["measured"])):
                best[key] = (path, row)
    lines = [
        (", ".join(filter(None, names)), number(row["measured"], 2), source(path, row))
        for (_, *names), (path, row) in best.items()
    ]
    return markdown(("what, beside whom", "ours / it", "row"), lines)


def mixture_layer() -> str:
    """Return the table of the MoE layer against a dense layer and its peers."""
    lines = []
    for path, row in measurements("moe", section="layer"):
        if row["variant"] == "matmul":
            continue
        milliseconds = f"{number(row['ms'], 1)} [{number(row['ms_least'], 1)}, {number(row['ms_most'], 1)}]"
        cells = (milliseconds if row["ms"] else row["note"], number(row["to_dense"], 2), number(row["to_ours"], 2))
        targets = (verdict(row), number(row["extra_mb"]), source(path, row))
        size = f"E={row['experts']}, {row['dtype']}, {row['threads']} threads"
        lines.append((f"{size}: {row['variant']}", *cells, *targets))
    return markdown(("layer", "ms", "/ dense", "/ ours", "target", "extra MB", "row"), lines)


def data_stages() -> str:
    lines = []
    for path, row in measurements("data"):
        cells = (rate(row, "pairs_per_second"), number(row["measured"], 2), verdict(row), source(path, row))
        lines.append((f"{row['section']}: {row['variant']}, {row['threads']} threads", *cells))
    return markdown(("what", "pairs/s", "measured", "target", "row"), lines)


def serving() -> str:
    lines = []
    for path, row in measurements("serve"):
        waits = (number(row["ms"]), number(row["ms_99"]))
        cells = (row["batch"], rate(row, "requests_per_second"), *waits, number(row["gain"], 1), source(path, row))
        lines.append((f"{row['clients']}, {row['run']}", *cells))
    return markdown(("clients, run", "lines together", "requests/s", "ms", "ms, p99", "to one client", "row"), lines)


def layouts() -> str:
    lines = []
    for path, row in measurements("layout"):
        least, most = number(row["cpu_ratio_least"], 2), number(row["cpu_ratio_most"], 2)
        spread = f"{number(row['cpu_ratio'], 2)} [{least}, {most}]"
        cells = (number(row["cpu_ms"], 1), spread, number(row["wall_ratio"], 2), source(path, row))
        lines.append((f"{row['kind']}, {row['way']}", *cells))
    return markdown(("way", "processor time, ms", "ratio", "ratio by the clock", "row"), lines)


def planned() -> str:
    lines = []
    for path, row in measurements("plan"):
        settings = {"ep": "1", "mp": "1", "zero_stage": "1", "recompute": "none", "optimizer": "adamw"}
        sizes = f"d={row['dim']} {row['layers']}+{row['layers']} E={row['experts']}, world {row['world']}"
        name = ", ".join([sizes, *(f"{key} {row[key]}" for key, usual in settings.items() if row[key] != usual)])
        memory = f"{float(row['memory']) / 1e6:,.0f}; {float(row['memory_measured']) / 1e6:,.0f}"
        seconds = f"{number(row['seconds'], 2)}; {number(row['seconds_measured'], 2)}"
        ratios = number(row["memory_ratio"], 2), number(row["seconds_ratio"], 2)
        lines.append((name, memory, ratios[0], seconds, ratios[1], row["verdict"], source(path, row)))
    return markdown(("model", "peak MB", "", "s a step", "", "verdict", "row"), lines)
