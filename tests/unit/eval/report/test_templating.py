from eval.report.templating import environment


def test_a_long_name_may_break_after_its_underscores_and_stays_escaped() -> None:
    template = environment().from_string("{{ name|breakable }}")
    assert template.render(name="8e_<b>&_6l") == "8e_<wbr>&lt;b&gt;&amp;_<wbr>6l"
    macro = environment().from_string("{% macro of(name) %}{{ name }}{% endmacro %}{{ of(name)|breakable }}")
    assert macro.render(name="a&b_c") == "a&amp;b_<wbr>c"
