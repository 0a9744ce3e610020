from pipeline.spelling import did_you_mean, nearest_names, suggestion


def test_the_most_similar_names_come_first() -> None:
    assert nearest_names("tarin", ["dev", "train", "taring"]) == ["taring", "train"]
    assert nearest_names("tarin", ["dev", "train", "taring"], most=1) == ["taring"]
    assert nearest_names("tarin", ["train"], cutoff=0.9) == []


def test_hints_of_messages() -> None:
    assert did_you_mean("tmy", ["tmx", "tsv"]) == "; did you mean tmx?"
    assert did_you_mean("zzz", ["tmx"]) == ""
    assert suggestion("tmy", iter(["tmx"])) == "; did you mean tmx?"
    assert suggestion("zzz", ["tmx", "tsv"]) == "; there are tmx, tsv"
    assert suggestion("zzz", [], listing="finished are") == "; finished are none"
