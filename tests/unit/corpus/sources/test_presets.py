"""Every preset reads copies of its data sets, with the layout of the original and rows of the embedded sample."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.corpus.fetch import fetch
from pipeline.corpus.fetched import FetchedTable, read_tables
from pipeline.corpus.languages import LangPair, MissingPairError
from pipeline.corpus.manifest import FileEntry, Manifest, read_manifest
from pipeline.corpus.sources.templates import expand, named_pairs

ROOT = Path(__file__).parents[4]
PAIRS = named_pairs("de-en en-zh-Hans fr-en")
REAL = {"de": "deu", "en": "eng", "fr": "fra", "zh-Hans": "zho"}  # ISO 639-3


@cache
def sample() -> dict[str, list[str]]:
    """Return forty rows of the sample by language."""
    head, *lines = (ROOT / "data" / "sample" / "test.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines[:40]]
    return {code: [row[i] for row in rows] for i, code in enumerate(head.replace("zh_CN", "zh-Hans").split("\t"))}


def preset(name: str) -> Manifest:
    return read_manifest(ROOT / "nowhere", ROOT / "data" / name / "manifest.yaml")


def fetched(entry: FileEntry, manifest: Manifest, files: Path, name: str = "out") -> FetchedTable:
    """Return the table that the first stage makes from an entry."""
    out = files / "fetched" / name
    out.mkdir(parents=True)
    fetch(entry, manifest, files=files, cache=files / "cache", out=out)
    (table,) = read_tables(out)
    return table


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def card(directory: Path, configs: dict[str, dict[str, str]]) -> None:
    """Write a README as `push_to_hub` does."""
    items = [
        {"config_name": name, "data_files": [{"split": part, "path": path} for part, path in parts.items()]}
        for name, parts in configs.items()
    ]
    header = yaml.safe_dump({"license": "unknown", "configs": items}, sort_keys=False)
    (directory / "README.md").write_text(f"---\n{header}---\n# A corpus\n")


def translations(first: str, second: str, codes: tuple[str, str]) -> pa.Table:
    kind = pa.struct([(code, pa.string()) for code in codes])
    pairs = zip(sample()[first], sample()[second], strict=True)
    return pa.table({"translation": pa.array([dict(zip(codes, pair, strict=True)) for pair in pairs], kind)})


def write_opus_100(files: Path) -> None:
    write_pairs(files / "Helsinki-NLP" / "opus-100", ("train", "validation", "test"), ["de-en", "en-fr", "en-zh"])


def write_wmt14(files: Path) -> None:
    write_pairs(files / "wmt" / "wmt14", ("train", "validation", "test"), ["de-en", "fr-en", "zh-en"])


def write_wmt19(files: Path) -> None:
    write_pairs(files / "wmt" / "wmt19", ("train", "validation"), ["de-en", "fr-en", "zh-en"])


def write_pairs(directory: Path, parts: tuple[str, ...], configs: list[str]) -> None:
    directory.mkdir(parents=True)
    for config in configs:
        first, second = config.split("-")
        table = translations(*(code.replace("zh", "zh-Hans") for code in (first, second)), (first, second))
        for part in parts:
            write(directory / config / f"{part}-00000-of-00001.parquet", table)
    card(directory, {config: {part: f"{config}/{part}-*" for part in parts} for config in configs})


def write_flores(files: Path) -> None:
    names = {"deu_Latn": "de", "eng_Latn": "en", "fra_Latn": "fr", "zho_Hans": "zh-Hans", "kor_Hang": "ko"}
    table = pa.table({"id": list(range(40)), **{name: sample()[code] for name, code in names.items()}})
    for part in ("dev", "devtest"):
        write(files / "mteb" / "flores" / f"{part}.parquet", table)


def write_ted(files: Path) -> None:
    directory = files / "sentence-transformers" / "parallel-sentences-talks"
    configs = {"en-de": "de", "en-fr": "fr", "en-zh-cn": "zh-Hans"}
    for config, code in configs.items():
        for part in ("train", "dev"):
            table = pa.table({"english": sample()["en"], "non_english": sample()[code]})
            write(directory / config / f"{part}-00000-of-00001.parquet", table)
    card(directory, {config: {part: f"{config}/{part}-*" for part in ("train", "dev")} for config in configs})


def sorted_pairs() -> list[tuple[str, str]]:
    """Return the languages of the pairs, in the order of their ISO codes."""
    return [tuple(sorted((pair.src, pair.tgt), key=lambda code: REAL[code])) for pair in PAIRS]  # type: ignore[misc]


def write_tatoeba(files: Path) -> None:
    for first, second in sorted_pairs():
        name = f"{REAL[first]}-{REAL[second]}"
        with tarfile.open(files / f"{name}.tar", "w") as file:
            for part, pack in (("train", gzip.compress), ("dev", bytes), ("test", bytes)):
                for side, code in (("src", first), ("trg", second)):
                    content = pack("".join(f"{text}\n" for text in sample()[code]).encode())
                    end = ".gz" if part == "train" else ""
                    info = tarfile.TarInfo(f"data/release/v2021-08-07/{name}/{part}.{side}{end}")
                    info.size = len(content)
                    file.addfile(info, io.BytesIO(content))


def write_tatoeba_mt(files: Path) -> None:
    for first, second in sorted_pairs():
        directory = files / "Helsinki-NLP" / "tatoeba_mt" / f"{REAL[first]}-{REAL[second]}"
        columns = {"sourceLang": ["x"] * 40, "targetlang": ["y"] * 40}
        table = pa.table({**columns, "sourceString": sample()[first], "targetString": sample()[second]})
        for part in ("validation", "test"):
            write(directory / part / "0000.parquet", table)


def write_ntrex(files: Path) -> None:
    names = {"src.eng": "en", "ref.deu": "de", "ref.fra": "fr", "ref.zho-CN": "zh-Hans"}
    for name, code in names.items():
        text = "".join(f"{line}\n" for line in sample()[code])
        (files / f"newstest2019-{name}.txt").write_text(text, encoding="utf-8")


def write_wmt24pp(files: Path) -> None:
    directory = files / "google" / "wmt24pp"
    directory.mkdir(parents=True)
    configs = {"en-de_DE": "de", "en-fr_FR": "fr", "en-zh_CN": "zh-Hans"}
    for config, code in configs.items():
        rows = [(False, *texts) for texts in zip(sample()["en"], sample()[code], strict=True)]
        rows[20:20] = [(True, "<html>", "<html>")]
        records = [
            {
                "lp": config,
                "domain": "news",
                "segment_id": number,
                "is_bad_source": bad,
                "source": source,
                "target": target,
            }
            for number, (bad, source, target) in enumerate(rows)
        ]
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (directory / f"{config}.jsonl").write_text(text, encoding="utf-8")
    card(directory, {config: {"train": f"{config}.jsonl"} for config in configs})


def write_bouquet(files: Path) -> None:
    directory = files / "facebook" / "bouquet"
    names = {"deu_Latn": "de", "fra_Latn": "fr", "cmn_Hans": "zh-Hans"}
    for name, code in names.items():
        columns = {"src_lang": [name] * 40, "src_text": sample()[code], "tgt_lang": ["eng_Latn"] * 40}
        for part in ("dev", "test"):
            table = pa.table({**columns, "tgt_text": sample()["en"]})
            write(directory / "data" / "sentence_level" / part / f"{name}.parquet", table)
    parts = {name: {part: f"data/sentence_level/{part}/{name}.parquet" for part in ("dev", "test")} for name in names}
    card(directory, parts)


LAYOUTS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "opus-100": (write_opus_100, ("train", "dev", "test")),
    "flores-200": (write_flores, ("dev", "test")),
    "wmt14": (write_wmt14, ("train", "dev", "test")),
    "wmt19": (write_wmt19, ("train", "dev")),
    "ted": (write_ted, ("train", "dev")),
    "tatoeba": (write_tatoeba, ("train", "dev", "test")),
    "tatoeba_mt": (write_tatoeba_mt, ("dev", "test")),
    "ntrex": (write_ntrex, ("test",)),
    "wmt24pp": (write_wmt24pp, ("test",)),
    "bouquet": (write_bouquet, ("dev", "test")),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_a_local_copy(name: str, tmp_path: Path) -> None:
    make, splits = LAYOUTS[name]
    make(tmp_path)
    manifest = expand(preset(name), PAIRS)
    rows_of: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for number, entry in enumerate(manifest.files):
        table = fetched(replace(entry, rows=None), manifest, tmp_path, str(number))  # the original has more
        rows = pq.read_table(table.path).to_pydict()
        assert (table.licence, table.citation) == (manifest.licence, manifest.citation)
        for pair in PAIRS:
            if {pair.src, pair.tgt} <= set(table.columns):
                rows_of[entry.split, pair.src, pair.tgt] = list(zip(rows[pair.src], rows[pair.tgt], strict=True))
    assert set(rows_of) == {(split, pair.src, pair.tgt) for split in splits for pair in PAIRS}
    for (_, src, tgt), rows in rows_of.items():
        assert rows == list(zip(sample()[src], sample()[tgt], strict=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("opus-100", "de-ja is none of its configurations; it has de-en, en-fr, en-zh"),
        ("wmt19", "de-ja or ja-de is none of its configurations; it has de-en, fr-en, zh-en"),
        ("flores-200", "no field 'jpn_Jpan' in columns; it has deu_Latn, eng_Latn"),
        ("tatoeba_mt", "deu-jpn is none of its configurations; it has deu-eng, eng-fra, eng-zho"),
    ],
)
def test_a_pair_that_is_not_there(name: str, message: str, tmp_path: Path) -> None:
    LAYOUTS[name][0](tmp_path)
    manifest = expand(preset(name), named_pairs("ja-de"))
    with pytest.raises(MissingPairError, match=message):
        fetched(manifest.files[0], manifest, tmp_path)


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("ntrex", "br-en", "the corpus has no br; it has af, am, ar, az"),
        ("wmt24pp", "br-en", "the corpus has no br; it has ar, ar-EG, bg"),
        ("wmt24pp", "de-fr", "corpus wmt24pp has only pairs with en"),
        ("bouquet", "de-fr", "corpus bouquet has only pairs with en"),
    ],
)
def test_a_pair_that_a_preset_cannot_have(name: str, pair: str, message: str) -> None:
    with pytest.raises(MissingPairError, match=message):
        expand(preset(name), named_pairs(pair))


def test_ntrex_has_the_languages_of_its_table_and_pairs_without_english(tmp_path: Path) -> None:
    manifest = preset("ntrex")
    assert len(manifest.codes) == len({*manifest.codes.values()}) == 124
    assert (manifest.codes["ref.srp-Latn"], manifest.codes["ref.zho-TW"]) == ("sr-Latn", "zh-Hant")
    write_ntrex(tmp_path)
    (entry,) = expand(manifest, named_pairs("fr-de")).files
    assert (entry.rows, entry.pair) == (1997, LangPair("de", "fr"))
    table = fetched(replace(entry, rows=None), manifest, tmp_path)
    assert pq.read_table(table.path).to_pydict() == {"de": sample()["de"], "fr": sample()["fr"]}


def test_pairs_without_english_that_a_preset_cannot_have() -> None:
    with pytest.raises(ValueError, match="pair de-fr: corpus ted has only pairs with en"):
        expand(preset("ted"), named_pairs("de-fr"))


@pytest.mark.parametrize("name", [*LAYOUTS, "freesoft38"])
def test_a_preset_is_complete(name: str) -> None:
    manifest = preset(name)
    config = yaml.safe_load((ROOT / "configs" / "corpus" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert (config["manifest"], manifest.name) == (f"data/{name}/manifest.yaml", name)
    assert config["path"] == ("" if name == "freesoft38" else "corpora")
    assert manifest.licence
    assert manifest.citation
    assert manifest.title
    assert f"`{name}`" in (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8")


def test_codes_of_flores() -> None:
    """The names of the languages of the sample and of freesoft38 are those of the published list of FLORES-200."""
    names = (
        "als_Latn arb_Arab asm_Beng cat_Latn ces_Latn dan_Latn ell_Grek est_Latn eus_Latn fin_Latn glg_Latn guj_Gujr "
        "hrv_Latn hun_Latn ind_Latn ita_Latn jpn_Jpan khm_Khmr kor_Hang lvs_Latn mar_Deva nld_Latn pes_Arab pol_Latn "
        "por_Latn rus_Cyrl slv_Latn spa_Latn srp_Cyrl swe_Latn tam_Taml tur_Latn ukr_Cyrl vie_Latn zho_Hant"
    )
    codes = (
        "sq ar as ca cs da el et eu fi gl gu hr hu id it ja km ko lv mr nl fa pl pt ru sl es sr sv ta tr uk vi zh-Hant"
    )
    pairs = named_pairs([f"{code}-en" for code in codes.split()])
    columns = expand(preset("flores-200"), pairs).files[0].columns
    assert columns == {**dict(zip(names.split(), codes.split(), strict=True)), "eng_Latn": "en"}
