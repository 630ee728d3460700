#!/usr/bin/env python3
"""Remakes tests/framework/jinja/golden and tests/framework/chat/golden: what jinja2, as transformers sets it up, makes of
small templates, and what transformers makes of conversations with the templates of public chat formats.

The templates of the formats are beside their golden files. They are our own: they have the constructs of those formats'
public templates and write the documented formats. The tokenizers are small ones of the same kinds.

Needs transformers and jinja2; the files are of Python 3.11, transformers 5.23.0, tokenizers 0.23.3, jinja2 3.1.6:
   python3 tests/golden/make_chat_golden.py
The tests themselves need only the files it writes.
"""

import json
import pathlib
import re

import make_tokenizer_golden as small

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
    "text": "  one two\n three  ", "lines": "a\n\nb\r\nc", "greek": "\u1f48\u0394\u03a5\u03a3\u03a3\u0395\u038e\u03a3, \u0391\u03a3\u0301. \u03a3 \u0391\u03a3'\u0391",
    "several": "\u00df \u0130i \u01c6 \ufb03x \u1f80\u03b1 \u0149 \u10d0\u10d1",
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
several|upper | several|lower | several|title | several.title() | several.split()|map("capitalize")|list | greek|lower | greek.lower() | greek|title | greek.title() | greek|capitalize | "\\u00df" is lower | "\\u0130" is upper | ["\\u0130", "i\\u0307", "\\u03a3"]|unique|list
range(*[1, 7, 2])|list | range(*l|map("int"))|list | dict(**{"a": 1}) | dict({"q": 1}, b=1, **{"a": 2}) | dict(a=1, **{"a": 2}) | dict(*[d]) | dict(*d.items()) | namespace(**d).a | "aXa"|replace(*["a", "b"]) | 9 is divisibleby(*[3]) | "a-b".split(*["-"]) | l|sort(**{"reverse": true}) | range(*[1], *[2]) | range(**{}, **{}) | range(*[1], 2) | dict(**{}, a=1) | dict(**{}, *[]) | range(*[1, 5],)|list | dict(**{1: 2}) | dict(**l) | range(*n) | dict(*undefined_name) | dict(**undefined_name)
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
    "{% for i in l %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% else %}x{% endfor %}", "{% for i in l %}{% for j in nested %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.depth }}{% endfor %}", "{% for i in l recursive %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 9 %}{% endfor %}", "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set n = 5 %}{% endif %}{{ n }}",
    "{% for i in l %}{% if loop.first %}{% set z = i %}{% endif %}{{ z is defined }}{% endfor %}", "{% set ns = namespace(c=0, f=false) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.f }}", "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{% set ns.done = true %}{% endfor %}",
    "{% set ns = namespace(done=false) %}{% for i in l if not ns.done %}{{ i }}{{ loop.last }}{% set ns.done = true %}{% endfor %}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns['a'] }}{{ ns.b }}", "{% set d.x = 1 %}", "{% set ns = namespace(_x=1) %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set x %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {{ s }} {% endset %}[{{ x }}]", "{% set x %}{% set n = 1 %}{{ n }}{% endset %}{{ x }}{{ n }}", "{% set x %}{% endset %}{{ x is string }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]", "{{ m(1) }}{% macro m(a) %}{% endmacro %}",
    "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') ~ m('b') }}{{ m('c')|length }}", "{% if zero %}a{% elif nil %}b{% elif n %}c{% else %}d{% endif %}", "{% if yes: %}a{% endif %}", "{% if 1, 2 %}t{% endif %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{{ 1, 2 }}",
    "{% filter upper %}a{{ n }}b{% endfilter %}", "{% filter replace('a', 'b')|upper %}\n  aXa\n{% endfilter %}\nz", "  {% filter trim %}\n  a  \n  {% endfilter %}\nz", "{% set x = 'a' %}{% filter replace(x, 'b') %}{% set x = 'c' %}ac{{ x }}{% endfilter %}{{ x }}", "{% filter upper %}{% set q = 'v' %}{{ q }}{% endfilter %}{{ q is defined }}", "{% for i in l %}{% filter upper %}x{{ loop.index }}{{ i }}{% endfilter %}{% endfor %}", "{% filter upper: %}a{% endfilter %}",
    "{% filter upper %}a{% filter replace('B', 'c') %}b{% filter upper %}b{% endfilter %}{% endfilter %}{% endfilter %}", "{% filter tojson %}a\"b{% endfilter %}", "{% filter indent(2, first=true) %}a\nb{% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% filter first %}{% endfilter %}", "{% filter nope %}a{% endfilter %}", "{% filter %}a{% endfilter %}", "{% filter upper %}a", "{% filter upper|upper('x') %}a{% endfilter %}",
    "{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}x{{ n }}{% endcall %}", "{% macro m(a) %}<{{ caller(a) }}{{ caller(a + 1) }}>{% endmacro %}{% call(x, y=9) m(3) %}[{{ x }}{{ y }}]{% endcall %}", "{% macro m() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}a{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% for i in l %}{% call m() %}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}", "{% macro m() %}{% set v = 5 %}{{ caller() }}{{ v }}{% endmacro %}{% set v = 1 %}{% call m() %}{{ v }}{% set v = 2 %}{% endcall %}{{ v }}", "{% macro a() %}({{ caller() }}){% endmacro %}{% macro b() %}{% call a() %}{{ caller() }}{% endcall %}{% endmacro %}{% call b() %}x{% endcall %}",
    "{% macro a() %}({{ caller() }}){% endmacro %}{% macro b() %}[{% set outer = caller %}{% call a() %}{{ outer() }}{% endcall %}]{% endmacro %}{% call b() %}x{% endcall %}", "{% macro a() %}({{ caller() }}){% endmacro %}{% macro b() %}[{{ caller() }}]{% endmacro %}{% call a() %}1{% call b() %}2{% endcall %}{% endcall %}", "{% macro m(caller=none) %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}", "{% macro m(x) %}{{ caller() }}{% endmacro %}{% call m(1, 2) %}x{% endcall %}",
    "{% macro m() %}\n  {{ caller() }}\n{% endmacro %}\na\n  {% call m() %}\n  b\n  {% endcall %}\nc", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call(x) m() %}{{ x is defined }}{% endcall %}", "{% macro m() %}{{ caller(*[1], **{'y': 2}) }}{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }}{% endcall %}", "{% macro m() %}{% macro k() %}{{ caller is defined }}{% endmacro %}{{ k() }}{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m() %}{% filter upper %}{{ caller() }}{% endfilter %}{% endmacro %}{% call m() %}a{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% set x %}{% call m() %}a{% endcall %}{% endset %}{{ x|upper }}", "{% macro m() %}{{ caller()|upper ~ caller()|length }}{% endmacro %}{% call m() %}ab{% endcall %}", "{% for i in l %}{% call m() %}{% break %}{% endcall %}{% endfor %}",
    "{% call m %}x{% endcall %}", "{% call m() %}x", "{% call nope() %}x{% endcall %}", "{% call 1 %}x{% endcall %}", "{% call range(2) %}x{% endcall %}", "{% call m()|upper %}x{% endcall %}", "{% call(a=1, b) m() %}{% endcall %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(*[1, 5]) }}{{ m(0, *[7]) }}{{ m(**{'c': 1, 'a': 2}) }}{{ m(*[1], c=3) }}{{ m(c=3, *[1]) }}{{ m(1, **{'b': 9}) }}{{ m(*'pq') }}{{ m(*[1], **{'c': 4}) }}{{ m(*undefined_name) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1, 2]) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, **{'a': 2}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, **{'a': 2}) }}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in l %}{{ loop.cycle(*words) }}{% endfor %}", "{{ loop }}", "{% for x in objs|selectattr('v', 'ge', 2) %}{{ loop.index }}{{ x.name }}{{ ',' if not loop.last }}{% endfor %}", "{% set loop = 1 %}", "{% set true = 1 %}", "{% generation %}a{{ n }}{% endgeneration %}b", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
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


def letter_cases():
    """Of each 4,096 characters where there are letters, a hash (FNV-1a, 32 bits) of what Python makes of all of them."""
    for first in [*range(0, 0x20000, 0x1000), 0xE0000]:
        made = ""
        for code in range(first, first + 0x1000):
            if 0xD800 <= code < 0xE000:
                continue
            c = chr(code)
            made += c.upper() + c.lower() + c.capitalize() + (c + "a\u03a3" + c).title()
            made += ("a" + c + "\u03a3").lower() + (c + "\u03a3").lower() + ("a\u03a3" + c + "b").lower()
        value = 2166136261
        for byte in made.encode():
            value = (value ^ byte) * 16777619 & 0xFFFFFFFF
        yield {"first": first, "hash": value}


def write_lines(path, cases):
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = list(cases)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    path.write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{path.name}: {len(cases)} cases")


def fix_the_date():
    import datetime

    from transformers.utils import chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 7, 5, 13, 4, 9)

    chat_template_utils.datetime = Fixed


def make_semantics():
    from transformers.utils import chat_template_utils

    compile_template = chat_template_utils._cached_compile_jinja_template
    expressions = [part for line in EXPRESSIONS.replace("\\\n", "\\\0").split("\n") for part in line.split(" | ")]
    sources = ["{{ " + part.replace("\0", "\n").strip() + " }}" for part in expressions] + TEMPLATES
    cases = [expected(compile_template, source) for source in sources]
    cases = [case for case in cases if " at 0x" not in case.get("text", "")]  # another text in every process
    JINJA.mkdir(parents=True, exist_ok=True)
    (JINJA / "variables.json").write_text(json.dumps(VARIABLES) + "\n", encoding="utf-8")
    write_lines(JINJA / "semantics.json", cases)
    write_lines(JINJA / "letter_cases.json", letter_cases())


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, id, **arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(text, id, name="weather"):
    return {"role": "tool", "name": name, "content": text, "tool_call_id": id}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "What the weather is like <now>, in a \"place\" & its surroundings: 学, é",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}},
}

CONVERSATIONS = [
    {"messages": [user("Hi"), assistant("Hello!")]},
    {"messages": [system("Be brief."), user("Who are you?"), assistant("A small model."), user("Sure?"), assistant("Yes.")]},
    {"messages": [user("1 + 1?"), assistant("2"), user("2 + 2?"), assistant("4"), user("4 + 4?"), assistant("8")]},
    {"messages": [user("Grüße 学习 😀"), assistant("您好，世界 👩‍👩‍👧‍👦 e\u0301\u00a0🇩🇪"), user("नमस्ते ﷽"), assistant("Ω≈ç√")]},
    {"messages": [user(""), assistant("")]},
    {"messages": [system(""), user(" "), assistant("\n"), user("a"), assistant("")]},
    {"messages": [system("  You  are \n"), user("trailing  \n\n"), assistant("  both  "), user("\tt"), assistant(" b\n")]},
    {"messages": [user("def f(x):\n\treturn {{ x }} {% if %}\n"), assistant("```python\nprint('\\n')\n```\n\nDone.")]},
    {"messages": [user("<|im_end|><|eot_id|></s>[/INST]<end_of_turn><|end|>"), assistant("<|im_start|>system\n<s>x")]},
    {"messages": [user("a\u2581b \u2581 c"), assistant("\u2581\u2581 d  e")]},
    {"messages": [user("think"), assistant("<think>\nhm, </think> hm\n</think>\n\nSo."), user("more"), assistant("<think></think>ok")]},
    {"messages": [system("One."), user("date?"), assistant("No idea.")], "chat_template_kwargs": {"date_string": "31 Feb 1999"}},
    {"messages": [user("Weather in Köln?"), assistant("Wait for it.")], "tools": [WEATHER, CLOCK]},
    {
        "messages": [
            system("Use tools."),
            user("Weather in Köln?"),
            {"role": "assistant", "tool_calls": [call("weather", "abcDEF123", place="Köln", days=2)]},
            answer('{"sky": "grey", "degrees": 7.5}', "abcDEF123"),
            assistant("Grey, 7.5 degrees."),
            user("Thanks"),
            assistant("Welcome."),
        ],
        "tools": [WEATHER],
    },
    {
        "messages": [
            user("Both"),
            assistant(
                "I look.", tool_calls=[call("weather", "000000001", place="学"), call("clock", "000000002")]
            ),
            answer("sunny", "000000001"),
            answer("12:00", "000000002", "clock"),
            assistant("Sunny at noon."),
        ],
        "tools": [WEATHER, CLOCK],
    },
    {"messages": [user("a"), user("b"), assistant("two questions")]},
    {"messages": [assistant("I begin."), user("a"), assistant("b")]},
    {"messages": [user("a"), system("late"), assistant("b")]},
    {"messages": [user("x" * 200 + " " * 50 + "y"), assistant("word " * 60)]},
]  # fmt: skip


def schema(type, **more):
    return {"type": type, **more}


# Of what the template of gpt-oss makes types.
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Looks for \"texts\"\nin <all> places",
        "parameters": schema(
            "object",
            properties={
                "query": schema("string", description="what to look for,\nin any language: 学"),
                "order": schema("string", enum=["newest", "best"], default="best"),
                "most": schema("integer", default=10, nullable=True),
                "tags": schema("array", items=schema("string"), nullable=True, default=None),
                "boxes": schema("array", items=schema("array", items=schema("number"))),
                "filter": schema(
                    "object",
                    properties={
                        "from": schema("string"),
                        "any": {"anyOf": [schema("string"), schema("null")]},
                        "deep": schema("array", items=schema("object", properties={"a": schema("boolean")}, required=["a"])),
                        "empty": schema("object"),
                    },
                    required=["from", "deep"],
                ),
                "where": {
                    "oneOf": [
                        schema("string", description="a name", default="é\n"),
                        schema("object", properties={"x": schema("number")}),
                        schema("array"),
                    ],
                    "default": {"x": [1.5, True]},
                },
                "either": schema(["string", "null"]),
                "both": schema("array", items=schema(["object", "object"])),
                "items": schema(["integer"]),
            },
            required=["query", "items"],
        ),
    },
}


def think(thought, text, **more):
    return assistant(text, thinking=thought, **more)


SEARCHED = [user("Find it"), {"role": "assistant", "tool_calls": [call("search", "1", query="it", items=[1])]}]
HARMONY_CONVERSATIONS = [
    {"messages": [user("Hi"), think("They greet.", "Hello!")], "chat_template_kwargs": {"reasoning_effort": "high"}},
    {"messages": [user("Hi"), assistant("Hello!"), user("Who?"), think("Who am I?\n", "A model.")]},
    {"messages": [user("Hi"), think("They greet.", "Hello!"), user("Who?"), think("Who am I?", "A model.")]},
    {"messages": [user("Hi"), assistant("Hello!"), user("Are you there?")]},
    {"messages": [{"role": "developer", "content": "Be \"kind\"."}, user("Hi"), assistant("", reasoning_content="hm")]},
    {"messages": SEARCHED, "tools": [SEARCH]},
    {"messages": SEARCHED + [answer('["a", "é"]', "1"), think("Found.", "It is there.")], "tools": [SEARCH, CLOCK]},
    {"messages": [SEARCHED[0], SEARCHED[1] | {"thinking": "Search."}], "tools": [SEARCH]},
    {"messages": [SEARCHED[0], SEARCHED[1] | {"thinking": "Search."}, answer("", "1"), assistant("No.")], "tools": [SEARCH]},
    {"messages": [SEARCHED[0], SEARCHED[1] | {"content": "a", "thinking": "b"}], "tools": [SEARCH]},
    {"messages": [user("a"), answer("b", "1"), assistant("c")]},
    {"messages": [user("a"), assistant("<|channel|>final<|message|>b")]},
    {
        "messages": [user("a"), {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "x", "content_type": "code"}]}],
        "chat_template_kwargs": {"builtin_tools": ["python", "browser"], "model_identity": "You are \"M\"."},
    },
]  # fmt: skip


def byte_level(special, pre_tokenizer, vocab_size=420):
    tokenizer = small.Tokenizer(small.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = small.decoders.ByteLevel()
    alphabet = sorted(small.pre_tokenizers.ByteLevel.alphabet())
    trainer = small.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(small.corpus(), trainer)
    tokenizer.add_special_tokens(special)
    return tokenizer


def formats():
    """Of each: a tokenizer of its kind, bos and eos."""
    pre = small.pre_tokenizers
    plain = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    split = small.byte_level_split(small.LLAMA3_SPLIT)
    digits = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False, use_regex=True)])
    by_name = small.metaspace_tokenizers(small.train_metaspace(300))
    by_name["mistral_style"].add_special_tokens(
        ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
    )
    by_name["gemma_style"].add_special_tokens(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"])
    phi = small.metaspace_tokenizers(small.train_metaspace(300))["llama2_style"]
    phi.add_special_tokens(["<|endoftext|>"])
    strips = [small.AddedToken(f"<|{name}|>", rstrip=True, normalized=False, special=True)
              for name in ("system", "user", "assistant", "end")]  # fmt: skip
    phi.add_special_tokens(strips)
    yield "chatml", byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], split), None, "<|im_end|>"
    llama = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    yield "llama3", byte_level(llama, split), "<|begin_of_text|>", "<|eot_id|>"
    yield "mistral", by_name["mistral_style"], "<s>", "</s>"
    yield "gemma", by_name["gemma_style"], "<bos>", "<eos>"
    yield "zephyr", by_name["llama2_style"], "<s>", "</s>"
    yield "phi3", phi, "<s>", "<|endoftext|>"
    yield "tulu", byte_level(["<|endoftext|>", "<|padding|>"], digits), "<|endoftext|>", "<|endoftext|>"
    tools = [f"tool▁{name}" for name in ("calls▁begin", "call▁begin", "call▁end", "calls▁end", "sep", "outputs▁begin",
                                         "output▁begin", "output▁end", "outputs▁end")]  # fmt: skip
    names = ["begin▁of▁sentence", "end▁of▁sentence", "User", "Assistant", *tools]
    deepseek = byte_level([f"<｜{name}｜>" for name in names], digits)
    yield "deepseek", deepseek, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    harmony = byte_level(small.HARMONY_TOKENS, small.byte_level_split(small.O200K_SPLIT))
    yield "harmony", harmony, "<|startoftext|>", "<|return|>"


def without_marks(template):
    """The same without {% generation %}: comments take white space away as blocks do."""
    return re.sub(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}", r"{#\1 \2#}", template)


class Format:
    def __init__(self, tokenizer, template):
        self.tokenizer, self.template = tokenizer, template

    def render(self, conversation, messages, **more):
        more |= conversation.get("chat_template_kwargs", {})
        return self.tokenizer.apply_chat_template(
            messages, chat_template=self.template, tools=conversation.get("tools"), **more
        )

    def learned_by_text(self, conversation, text):
        """What the text grows by for each turn of the assistant; None where earlier text changes."""
        spans = []
        messages = conversation["messages"]
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self.render(conversation, messages[:i], tokenize=False, add_generation_prompt=True)
            after = self.render(conversation, messages[: i + 1], tokenize=False)
            if not text.startswith(after):
                after = after.removesuffix(self.tokenizer.eos_token)
            if not (text.startswith(after) and after.startswith(before)):
                return None
            spans.append((len(before), len(after)))
        return spans


def learned_tokens(marked, encoded, text):
    """transformers' mask, and the tokens that have their character in common with one before that is learned: of several
    tokens of a block's last character transformers marks the first."""
    mask = list(encoded["assistant_masks"])
    offsets = marked.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for i in range(1, len(mask)):
        if mask[i - 1] and offsets[i][0] < offsets[i - 1][1]:
            mask[i] = 1
    return mask, offsets


def chat_case(marked, conversation):
    from jinja2 import TemplateError, TemplateSyntaxError

    case = {"line": json.dumps(conversation, ensure_ascii=False)}
    try:
        text = marked.render(conversation, conversation["messages"], tokenize=False)
    except TemplateSyntaxError:
        raise
    except TemplateError as error:
        return case | {"error": str(error)}
    encoded = marked.render(
        conversation, conversation["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    case["text"] = text
    case["prompt"] = marked.render(conversation, conversation["messages"], tokenize=False, add_generation_prompt=True)
    case["ids"] = encoded["input_ids"]
    learned, offsets = learned_tokens(marked, encoded, text)
    case["learned"] = "".join(map(str, learned))
    if conversation["messages"][0]["role"] == "assistant":  # nothing comes before, which transformers does not render
        return case
    plain = Format(marked.tokenizer, without_marks(marked.template))
    assert plain.render(conversation, conversation["messages"], tokenize=False) == text
    try:
        spans = plain.learned_by_text(conversation, text)
    except TemplateError:
        spans = None
    case["grows"] = spans is not None
    if spans is not None:
        by_text = [int(any(a < end and begin < b for a, b in spans)) for begin, end in offsets]
        assert by_text == learned, (conversation, text, by_text, learned)
    return case


def make_formats():
    from transformers import PreTrainedTokenizerFast

    for name, tokenizer, bos, eos in formats():
        directory = CHAT / name
        content = json.loads(tokenizer.to_str())
        (directory / "tokenizer.json").write_text(
            json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
        )
        config = {"bos_token": bos, "eos_token": eos}
        (directory / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False) + "\n", encoding="utf-8")
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
        template = (directory / "chat_template.jinja").read_text(encoding="utf-8")
        conversations = CONVERSATIONS + (HARMONY_CONVERSATIONS if name == "harmony" else [])
        cases = [chat_case(Format(fast, template), conversation) for conversation in conversations]
        write_lines(directory / "cases.json", cases)
        grows = sum(case.get("grows", False) for case in cases)
        print(f"  {name}: {sum('error' in case for case in cases)} refused, {grows} can be told without marks")


if __name__ == "__main__":
    fix_the_date()
    make_semantics()
    make_formats()
