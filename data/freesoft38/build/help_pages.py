"""LibreOffice help: HTML pages that have the same blocks with the same ids in every language."""

from collections import Counter

from lxml import html

from .text import clean

BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})


def page_blocks(page: bytes) -> dict[tuple[str, int], str]:
    """Return the text of each block of a page, but code, by its id and how often the id came before.

    Where a sentence names keys or paths by operating system, those of macOS and Unix are left out.
    """
    root = html.fromstring(page, parser=html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True))
    counts: Counter[str] = Counter()
    blocks = {}
    for element in root.xpath("//*[@id='DisplayArea']//*[@id]"):
        if element.tag not in BLOCKS or "code" in element.get("class", ""):
            continue
        for variant in element.xpath(".//span[@class='MAC' or @class='UNIX']"):
            variant.drop_tree()
        identity = element.get("id")
        blocks[identity, counts[identity]] = clean(element.text_content())
        counts[identity] += 1
    return blocks
