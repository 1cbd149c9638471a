"""Scripts and sheets lose what nobody needs, and nothing else."""

from __future__ import annotations

import pytest

from web.bundling.scripts import NotUnderstood, tokens
from web.bundling.squeezing import script, style


def small(text: str) -> str:
    return script(tokens(text))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("const a = 1; // why\nconst b = 2;", "const a=1;const b=2;"),
        ("/** doc */ function f(a, b) {\n  return a + b;\n}", "function f(a,b){return a+b}"),
        ("let a = b\n(c)", "let a=b\n(c)"),
        ("let a = b\n[0]", "let a=b\n[0]"),
        ("a\n++\nb", "a\n++\nb"),
        ("a + +b; a - -b; a + ++b", "a+ +b;a- -b;a+ ++b"),
        ("return\nx", "return\nx"),
        ("a\n  .b()\n  .c()", "a.b().c()"),
        ("const f = () => {}\nfunction g() {}", "const f=()=>{}\nfunction g(){}"),
        ("for (;;) { if (a) ; }", "for(;;){if(a);}"),
        ("while (next());\n{ stop(); }", "while(next());{stop()}"),
        ("do x(); while (y); }".replace(" }", ""), "do x();while(y);"),
        (
            "const s = '// no comment', d = \"/* nor */ here\";",
            "const s='// no comment',d=\"/* nor */ here\";",
        ),
        ("const s = 'it\\'s';  x", "const s='it\\'s';x"),
        ("x = /[/'\"]  \\/ /g.test(y)", "x=/[/'\"]  \\/ /g.test(y)"),
        ("if (x) /a  b/.test(y)", "if(x)/a  b/.test(y)"),
        ("x = (a + b) / c / d", "x=(a+b)/c/d"),
        ("x = a[0] / 2; // half", "x=a[0]/2;"),
        ("return /a  b/;", "return/a  b/;"),
        ("x = y / /a/.exec(z)", "x=y/ /a/.exec(z)"),
        ("1 .toFixed(); 1.5 .toFixed()", "1 .toFixed();1.5 .toFixed()"),
        ("x ?.5 : 1", "x?.5:1"),
        ("x  ?.  y", "x?.y"),
        ("const t = `a  ${ b + `c  ${ d }` }  // e`;", "const t=`a  ${b+`c  ${d}`}  // e`;"),
        ("const t = `\\`  \\${ x`;", "const t=`\\`  \\${ x`;"),
        ("const t = `${ { a: 1 }.a }  b`;", "const t=`${{a:1}.a}  b`;"),
        ("class A { #x = 1; get y() { return this.#x; } }", "class A{#x=1;get y(){return this.#x}}"),
        ("a ??= b ?? c", "a??=b??c"),
        ("const { a, ...b } = c", "const{a,...b}=c"),
        ("x in y; typeof  x; new  X", "x in y;typeof x;new X"),
        ("const ü = 'ß';", "const ü='ß';"),
        ("", ""),
    ],
)
def test_a_script_keeps_its_meaning(text: str, result: str) -> None:
    assert small(text) == result
    assert small(result) == result


@pytest.mark.parametrize(
    "text", ["a = {} / 2", "x++ / 2", "f(", "f)", "'open", "`open ${ x }", "/open", "{ ] }", "a # b"]
)
def test_what_can_be_read_two_ways_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(NotUnderstood, match="line 3"):
        tokens("// one\n// two\n" + text)


def test_only_a_marked_template_is_a_sheet() -> None:
    css = "`\n.a { color: red; }  /* no */\n`"
    assert small(f"x = {css}") == f"x={css}"
    assert small(f"x = /* css */ {css}") == "x=` .a{color:red}`"
    assert small(f"x = /* css like */ {css}") == f"x={css}"


def test_a_sheet_in_pieces_keeps_its_expressions() -> None:
    text = "x = /* css */ `.a { ${  rules  }  color : red; } ${ `  plain  ` }  ${y}`"
    assert small(text) == "x=`.a{${rules} color :red}${`  plain  `} ${y}`"


def test_a_sheet_with_an_escape_stays_as_it_is() -> None:
    text = "x=/* css */ `.a  { content: '\\\\201C' }`"
    assert small(text) == "x=`.a  { content: '\\\\201C' }`"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (".a  .b > .c ,\n.d { }", ".a .b>.c,.d{}"),
        (".a :hover { }", ".a :hover{}"),
        ("a { b: calc( 1px  +  2px ) !important; }", "a{b:calc(1px + 2px)!important}"),
        ("a { b: 'x  ;  y'; c: \"{ /* kept\" }", "a{b:'x  ;  y';c:\"{ /* kept\"}"),
        ("a{b:c}/* gone; 'too' */d{e:f}", "a{b:c}d{e:f}"),
        ("a { b: '/* kept */' }", "a{b:'/* kept */'}"),
        ("a[b=\"c-d\"] [e=''][f='1'][g='h i'] { i: \"j\" }", "a[b=c-d] [e=''][f='1'][g='h i']{i:\"j\"}"),
        ("@media (max-width: 5px) and (a) { b { c: d } }", "@media (max-width:5px) and (a){b{c:d}}"),
        ("a { margin: 0 -1px; b: rgb(0 0 0 / .2) }", "a{margin:0 -1px;b:rgb(0 0 0 / .2)}"),
    ],
)
def test_a_sheet_keeps_its_meaning(text: str, result: str) -> None:
    assert style(text) == result
