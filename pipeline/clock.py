"""Durations for people."""


def clock(seconds: float) -> str:
    """Return 1:02:03 or 2:03, or -:-- where the number of seconds is unknown."""
    if seconds != seconds or seconds == float("inf"):
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
