"""Numbers for readers: true minus signs, commas in large numbers, sizes and times with their unit."""

MISSING = "–"


def signed(value: float | None, decimals: int = 1) -> str:
    """Return a difference with its sign: +1.2 or −0.4. Zero has no sign."""
    if value is None:
        return MISSING
    text = f"{abs(value):.{decimals}f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def decimal(value: float | None, decimals: int = 1) -> str:
    """Return a decimal number with a true minus sign: −1,234.5."""
    return MISSING if value is None else f"{value:,.{decimals}f}".replace("-", "−")


def integer(value: float | None) -> str:
    """Return a whole number: 12,345."""
    return MISSING if value is None else f"{value:,.0f}".replace("-", "−")


def span(low: int, high: int) -> str:
    """Return a range: 749–5,985, or one number if low and high are the same."""
    return integer(low) if low == high else f"{integer(low)}–{integer(high)}"


def quantity(value: float | None) -> str:
    """Return three significant digits and a unit prefix: 3.21 M, 9.10 G, 2.40 P."""
    if value is None:
        return MISSING
    for size, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            decimals = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{decimals}f} {prefix}"
    return f"{value:.0f}"


def percent(value: float | None) -> str:
    """Return a fraction (0 to 1) in whole per cent."""
    return MISSING if value is None else f"{100 * value:.0f} %"


def share(value: float) -> str:
    """Return a fraction (0 to 1) in per cent with one decimal. Only 0 becomes 0.0 %, and only 1 becomes 100 %."""
    text = f"{100 * value:.1f} %"
    if text == "0.0 %" and value > 0:
        return "<0.1 %"
    return ">99.9 %" if text == "100.0 %" and value < 1 else text.replace("100.0", "100")


def duration(seconds: float | None) -> str:
    """Return a time: 45 s, 8 min 40 s, 3 h 05 min."""
    if seconds is None:
        return MISSING
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"


def rough_duration(seconds: float) -> str:
    """Return a time that is an estimate: 45 s, 14 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    return f"{minutes} min" if seconds >= 60 and minutes < 60 else duration(seconds)


def p_value(value: float | None, n_resamples: int) -> str:
    """Return three decimals. The smallest p-value that so many resamples can give gets a less-or-equal sign."""
    if value is None:
        return MISSING
    floor = 1 / (n_resamples + 1)
    return f"≤ {max(floor, 0.001):.3f}" if value <= max(floor, 0.001) else f"{value:.3f}"
