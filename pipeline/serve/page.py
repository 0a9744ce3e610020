"""The web page of a server."""

import base64
import hashlib
import re
from pathlib import Path

from fastapi.responses import HTMLResponse

_PAGE = Path(__file__).with_name("page.html")


async def page() -> HTMLResponse:
    """Answer with the page. Its policy allows only its own script, and requests to this server only."""
    text = _PAGE.read_text(encoding="utf-8")
    sources = {
        kind: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        )
        for kind, tag in (("script-src", "script"), ("style-src", "style"))
    }
    policy = "; ".join(
        [
            "default-src 'none'",
            *(f"{kind} {hashes}" for kind, hashes in sources.items()),
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ]
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(text, headers=headers)
