#!/usr/bin/env python3
"""Remakes tests/framework/jinja/golden and tests/framework/chat/golden: what jinja2, as transformers sets it up, makes of
small templates, and what transformers makes of conversations with the templates of public chat formats.

The templates are our own: they have the constructs of those formats' templates and write the documented formats.

Needs transformers and jinja2:   python3 tests/golden/make_chat_golden.py
The tests themselves need only the files it writes.
"""

import json
import pathlib
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
JINJA = TESTS / "framework/jinja/golden"
CHAT = TESTS / "framework/chat/golden"

VARIABLES = {
    "n": 7, "zero": 0, "neg": -7, "pi": 3.14159, "big": 12345678901234567, "yes": True, "no": False, "nil": None,
    "s": "Hello World", "e": "", "u": "Größe 学 😀", "esc": "a\"b\\c\nd\te<>&'\u0001\u007f\u2028",
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, 4]], "el": [],
    "d": {"b": 2, "a": 1, "items": "own", "x y": {"z": [1, {"q": None}]}}, "ed": {},
    "objs": [{"name": "x", "v": 2, "f": {"g": 1}}, {"name": "y", "v": 1, "f": {"g": 0}}, {"name": "X", "v": 3}],
    "floats": [0.1, 1.0, 1e16, 1e-5, 123456789.125, -0.0, 1e22, 0.0001, 1.5e300, 100.0],
    "text": "  one two\n three  ", "lines": "a\n\nb\r\nc",
}  # fmt: skip

EXPRESSIONS = """
1 + 2 | 7 // 2 | -7 // 2 | 7 // -2 | 7 % 3 | -7 % 3 | 7 % -3 | -7.5 % 2 | 7.5 // 2 | -7.5 // 2 | 7 / 2 | 6 / 2 | 2 ** 10 | 2 ** -1 | -2 ** 2 | 2 ** 3 ** 2
1.0 | 1e3 | 1.5e10 | 0.1 + 0.2 | 1e16 | 1e15 | 123456.789e3 | 10 / 3 | 1_000 | 3 * 1.5 | floats | floats[3] ~ "" | -0.0 | 2 ** 0.5 | 10 ** 18
"a" * 3 | 3 * "ab" | "a" * 0 | "a" * -1 | [1, 2] * 2 | (1, 2) * 2 | [1] + [2] | (1,) + (2,) | "a" + "b" | "a" "b" 'c'
"a" ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] | none ~ undefined_name | nil | yes | no | yes + 1 | true + true
not n | not e | not el | not ed | not zero | not nil | not 0.0 | not "0" | not [0] | not undefined_name | n and s | e or "x" | nil or el or 5 | zero and n | n and not no
1 < 2 | 1 < 2 < 3 | 1 < 3 < 2 | 1 == 1.0 | 1 == true | "a" < "b" | "a" == "A" | [1, 2] == [1, 2] | [1, 2] < [1, 3] | (1, 2) == [1, 2] | {"a": 1} == {"a": 1.0} | nil == none | none == undefined_name | undefined_name == other | 1 != 2 | "10" < "9" | 2 >= 2 > 1
"ell" in s | "x" in s | "x" not in s | 3 in l | 3 not in l | "a" in d | "zz" in d | 1 in (1, 2) | "" in s | "x" in undefined_name | none in [none] | not 3 in l | 1 in 'abc'
s[0] | s[-1] | s[99] | s[1:4] | s[::-1] | s[::2] | s[-3:] | s[:-3] | s[5:2] | s[10:0:-3] | u[7] | u[-1] | u[::-1] | u[2:5] | l[0] | l[-1] | l[5] | l[1:] | l[::-1] | l[-2:] | l[:1] | l[5:] | l[-99:2] | l[2:-99:-1] | (1, 2, 3)[1:] | nested[1][0] | nested[0].1 | n[0] | nil.x | nil['x'] | l[1.5] | l["a"] | l[true] | range(10)[2:5]|list | range(5)[1]
d.b | d['b'] | d.items | d['items'] | d.get('a') | d.get('q') | d.get('q', 5) | d.nope | d["x y"].z[1].q | d.keys()|list | d.values()|list | d.items()|list | d|length | d|list | d|first | d.copy() == d | d.keys() | 'a' in d.keys()
s|upper | s|lower | u|upper | u|lower | s|length | u|length | s|title | "it's a-b (c)[d]{e}<f> g_h"|title | "it's ab"|capitalize | "ÄÖ ß".lower() | u.upper() | "it's ab1c".title() | "ABC".capitalize() | "é".upper() | ""|capitalize | ""|title
text|trim | text.strip() | text.lstrip() | text.rstrip() | "xxaxx".strip("x") | "xyaxy"|trim("xy") | "\\u00a0\\u2003a\\u3000"|trim | "\\x1c a \\x85".strip() | "a\\u200b".strip() ~ "|"
"a,b,,c".split(",") | "a,b,,c".split(",", 1) | text.split() | text.split(none, 1) | "a--b--c".split("--") | "a,b,c".rsplit(",", 1) | "".split() | "".split(",") | lines.splitlines() | lines|length | "a b".split(" ")[-1]
s.startswith("He") | s.startswith("he") | s.endswith("ld") | s.startswith(("x", "H")) | s.find("o") | s.rfind("o") | s.find("zz") | u.find("学") | s.count("l") | s.replace("l", "L") | s.replace("l", "L", 2) | "abc".replace("", "-") | "学a".replace("", ".") | "aaa"|replace("a", "bb") | "aaa"|replace("a", "b", 2) | 12|replace(1, "x") | "a".removeprefix("a") | "ab".removesuffix("b") | "12".isdigit() | "1a".isdigit() | ", ".join(["a", "b"]) | "-".join("abc")
l|join | l|join(", ") | words|join("-") | objs|join(", ", attribute="name") | "abc"|join("|") | el|join | d|join(",") | [1, none, true, 2.0]|join("/")
l|first | l|last | el|first | el|last | s|first | s|last | "" |first | undefined_name|first | d|last | range(3)|last
undefined_name | undefined_name|default("x") | e|default("x") | e|default("x", true) | nil|default("x") | nil|d("x", boolean=true) | undefined_name is defined | undefined_name|length | undefined_name|list | undefined_name|join(",") | undefined_name|upper | d.nope|default(1) | (undefined_name if no) is defined | ("x" if no) ~ "y" | "a" if n else "b" | "a" if zero else "b" if zero else "c"
undefined_name.x | undefined_name + 1 | undefined_name[0] | undefined_name() | undefined_name < 1 | -undefined_name | d.nope.more | "a" + 1 | 1 + "a" | "a" - "b" | [] + () | none + 1 | 1 / 0 | 1 % 0 | none < 1 | "a" < 1 | l.append(4) | d.update({}) | d.pop("a") | s.nope() | nil|length | 5|length | 5|list | nil|list | none|join | {}|first|upper
el|tojson | ed|tojson | d|tojson | l|tojson | esc|tojson | u|tojson | u|tojson(ensure_ascii=true) | nil|tojson | yes|tojson | 1.0|tojson | floats|tojson | (1, 2)|tojson | "x"|tojson | d|tojson(indent=2) | nested|tojson(indent=4) | [[], {}]|tojson(indent=1) | d|tojson(separators=(",", ":")) | d|tojson(sort_keys=true) | l|tojson(indent=0) | {1: 2, none: 3, true: 4, 1.5: 5}|tojson | undefined_name|tojson | d|tojson(indent=2, separators=(" ,", " : ")) | d|tojson(true) | "\\b\\f\\x0b/"|tojson
[1, "a", none, true, 1.5, [2], {"k": "v"}, (3,), ()] | ["it's", 'say "x"', "b'\\"o", "n\\nl\\\\", "\\x00\\x7f\\x85é学😀\\u200b\\ufeff"] | {"a": [1, 2], 3: none} | (1,) | () | {}
objs|map(attribute="name")|list | objs|map(attribute="f.g", default=9)|list | words|map("upper")|list | words|map("replace", "a", "z")|join | objs|selectattr("v", "gt", 1)|map(attribute="name")|join | objs|selectattr("f")|list|length | objs|rejectattr("f")|list|length | objs|selectattr("name", "equalto", "x")|list | l|select("odd")|list | l|reject("odd")|list | [0, 1, "", "a"]|select|list | l|select("in", [1, 2])|list | objs|selectattr("f", "defined")|list|length | nested|map("first")|list | nested|map(attribute=0)|list | objs|map(attribute="f")|map("default", {})|list|length
(l|select("gt", 9)) is defined | "t" if l|select("gt", 9) else "f" | "t" if l|select("gt", 9)|list else "f" | l|map("string")|length | objs|selectattr("v")|first | nil|select("odd")|list | (l|map("string"))[0] | l|reverse|list | s|reverse | l|reverse|first
l|sort | l|sort(reverse=true) | words|sort | words|sort(case_sensitive=true) | objs|sort(attribute="v")|map(attribute="name")|join | objs|sort(attribute="name", reverse=true)|map(attribute="v")|join | words|unique|list | [1, 1.0, true, 2]|unique|list | words|unique(case_sensitive=true)|join | d|dictsort|string | {"b": 1, "A": 2, "a": 0}|dictsort | {"b": 1, "a": 2}|dictsort(by="value", reverse=true) | [1, "a"]|sort | {"x": 2, "y": 1}|items|list | undefined_name|items|list
"3"|int | " 42 "|int | "4.7"|int | "x"|int | "x"|int(5) | 4.9|int | -4.9|int | true|int | nil|int(3) | "1e3"|int | "2.5"|float | "x"|float | 3|float | -3|abs | -2.5|abs | 5|string ~ 1 | l|string | l|count | "<b>"|safe | none|string
"a\\nb\\n\\nc"|indent | "a\\nb"|indent(2, true) | "a\\n\\nb"|indent(1, blank=true) | "a\\nb"|indent("> ") | ""|indent | "a\\n"|indent(2) ~ "|" | "a\\nb"|indent(width=3, first=true)
n is number | n is integer | 1.0 is float | true is integer | true is boolean | true is number | s is string | l is sequence | s is sequence | d is sequence | d is mapping | l is iterable | n is iterable | nil is none | nil is not none | n is not defined | l is mapping | true is true | 1 is true | false is false | n is odd | n is even | 9 is divisibleby 3 | 9 is divisibleby(2) | "abc" is lower | "ABC" is upper | "a1" is lower | "1" is lower | 3 is in l | 3 is not in [1] | n is eq 7 | n is equalto(7) | n is ne 7 | n is gt 3 | n is lessthan 3 | n is ge(7) | none is sameas none | range(2) is sequence | d.keys() is sequence | (l|map("string")) is iterable | undefined_name is sequence | undefined_name is iterable | undefined_name is none | n is defined and s is string | n is string or n is number | not n is string | range is callable | nil is string
range(3)|list | range(1, 7, 2)|list | range(5, 0, -2)|list | range(3)|length | range(0)|list | dict(a=1, b=2) | dict({"x": 1}, y=2) | dict([["p", 1]]) | namespace(a=1).a | namespace({"q": 3}).q | namespace(a=1).b is defined | range(3) == range(3)
'\\x41\\u00e9\\U0001F600\\101\\q\\'' | "tab\\there" | "new\\
line" | 'a"b' | "\\\\n"
raise_exception("no: " ~ n) | strftime_now("%d %b %Y %H:%M %%")
[1, 2,] | (1, 2,) | {"a": 1,} | [[]] | {"a": {"b": 1}}.a.b | (n) | ((1, 2), 3) | -n | +n | - - n | n|abs|string|length | (n|string).zfill
""".strip()  # fmt: skip

TEMPLATES = [
    "a\n", "a\n\n", "\n a", "a\r\nb\rc\n", "{% if yes %}\nx\n{% endif %}\ny", "  {% if yes %}  \nx\n  {% endif %}\ny",
    "a  {% if yes %}b{% endif %}  c", "a {%- if yes -%} b {%- endif -%} c", "a\n  {%+ if yes %}b{% endif +%}\nc",
    "  {{ n }}  \n  {{- n -}}  \n x", "{{ n }}\n{{ n }}\n", "{# c #}\nx\n  {# d #}  y\n{#- e -#}\n z {#+ f +#}\nq",
    "x{% raw %}{{ n }} {% if %}{% endraw %}y", "a\n  {% raw %}\n b {{\n  {% endraw %}\nc", "{%- raw -%}  x  {%- endraw -%} y",
    "{% raw -%}\n x {%- endraw %}\n", "{%if yes%}a{%endif%}", "{% if yes %}{% else %}{% endif %}|", "{{ '}}' }} {{ '%}' }}",
    "{{ {'a': {'b': 1}} }}", "{{{'a': 1}}}", "a { b } c {", "{% set x = 1 %}\n{% set y = 2 -%}\n\n {{ x + y }}",
    "{% for i in l %}{{ i }}{% endfor %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in l if i != 1 %}{{ i }}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}", "{% for i in el %}x{% else %}none{% endfor %}", "{% for i in l if i > 9 %}x{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in nested %}{{ a * b }} {% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}", "{% for i in undefined_name %}x{% else %}e{% endfor %}", "{% for i in nil %}{% endfor %}", "{% for a, b in l %}{% endfor %}",
    "{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(5) %}{% if i % 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% break %}{% else %}x{% endfor %}",
    "{% for i in l %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% else %}x{% endfor %}", "{% for i in l %}{% for j in nested %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in l recursive %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 9 %}{% endfor %}", "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set n = 5 %}{% endif %}{{ n }}",
    "{% for i in l %}{% if loop.first %}{% set z = i %}{% endif %}{{ z is defined }}{% endfor %}", "{% set ns = namespace(c=0, f=false) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.f }}", "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{% set ns.done = true %}{% endfor %}",
    "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{{ loop.last }}{% set ns.done = true %}{% endfor %}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns['a'] }}{{ ns.b }}", "{% set d.x = 1 %}", "{% set ns = namespace(_x=1) %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set x %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {{ s }} {% endset %}[{{ x }}]", "{% set x %}{% set n = 1 %}{{ n }}{% endset %}{{ x }}{{ n }}", "{% set x %}{% endset %}{{ x is string }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]", "{{ m(1) }}{% macro m(a) %}{% endmacro %}",
    "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') ~ m('b') }}{{ m('c')|length }}", "{% if zero %}a{% elif nil %}b{% elif n %}c{% else %}d{% endif %}", "{% if yes: %}a{% endif %}", "{% if 1, 2 %}t{% endif %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{{ 1, 2 }}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{{ loop }}", "{% for x in objs|selectattr('v', 'ge', 2) %}{{ loop.index }}{{ x.name }}{{ ',' if not loop.last }}{% endfor %}", "{% set loop = 1 %}", "{% set true = 1 %}", "{% generation %}a{{ n }}{% endgeneration %}b", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% for i in l -%}\n  {{ i }}\n{%- endfor %}\n!", "{%- for i in l %}\n{{- i }}\n{% endfor -%}\n", "{{ n -}}\n\n{{- s }}", "x\n\n  {%- if yes %}\n\n  y{% endif %}", "{% if yes %}\r\nx{% endif %}", "\u00a0 {%- if yes %}x{% endif %}", "\u00a0\t{% if yes %}x{% endif %}\u2003\n",
    "{{ n", "{% if yes %}", "{% endif %}", "{% if %}{% endif %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 'a }}", "{# a", "{% raw %}a", "{% foo %}", "{% for in l %}{% endfor %}", "{{ n is }}", "{{ n| }}", "{{ n|nope }}", "{{ n is nope }}", "{% break %}", "{{ f(a=1, 2) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% set 1 = 2 %}", "{{ 1 is odd is even }}", "{{ a b }}", "{{ n.0.1 }}", "{{ \u00e9 }}", "{{ ) }}", "{{ 012 }}", "{{ n ? 1 }}", "{{ '\\xg1' }}",
]  # fmt: skip


def environment():
    from transformers.utils import chat_template_utils

    return chat_template_utils._cached_compile_jinja_template


def expected(compile_template, source):
    try:
        return {"source": source, "text": compile_template(source).render(**VARIABLES)}
    except Exception:
        return {"source": source, "error": True}


def write_lines(path, cases):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    path.write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{path.name}: {len(cases)} cases")


def make_semantics():
    import datetime

    from transformers.utils import chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 7, 5, 13, 4, 9)

    chat_template_utils.datetime = Fixed
    compile_template = chat_template_utils._cached_compile_jinja_template
    expressions = [part for line in EXPRESSIONS.replace("\\\n", "\\\0").split("\n") for part in line.split(" | ")]
    sources = ["{{ " + part.replace("\0", "\n").strip() + " }}" for part in expressions] + TEMPLATES
    cases = [expected(compile_template, source) for source in sources]
    cases = [case for case in cases if " at 0x" not in case.get("text", "")]  # another text in every process
    JINJA.mkdir(parents=True, exist_ok=True)
    (JINJA / "variables.json").write_text(json.dumps(VARIABLES) + "\n", encoding="utf-8")
    write_lines(JINJA / "semantics.json", cases)


if __name__ == "__main__":
    make_semantics()
