"""GNOME's help: Mallard pages (XML), whose blocks are in the same order in every language."""

from lxml import etree

from .text import clean

NAMESPACE = "{http://projectmallard.org/1.0/}"
BLOCKS = [NAMESPACE + name for name in ("title", "subtitle", "desc", "p", "td")]


def page_blocks(page: bytes) -> list[str]:
    """Return titles, descriptions, paragraphs and cells of a page in document order, but cells that hold paragraphs.

    Empty blocks stay, for the alignment.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True)
    blocks = etree.fromstring(page, parser).iter(*BLOCKS)
    leaves = (block for block in blocks if block.tag != BLOCKS[-1] or block.find(f".//{NAMESPACE}p") is None)
    return [clean("".join(block.itertext())) for block in leaves]
