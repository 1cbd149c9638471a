"""What nobody means is not sent, and the rest is spelt in fewer letters."""

from __future__ import annotations

import pytest

from web.bundling.packing import pack
from web.bundling.scripts import tokens
from web.bundling.shortening import parts
from web.bundling.squeezing import script
from web.bundling.trimming import meant, spelt


def trimmed(text: str, *kept: str) -> str:
    (body,) = meant([list(parts(tokens(text)))], kept)
    return script([token for part in body for token in part])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("const a = async x => x;\nconst async = 1;\nf(async);", "const async=1;f(async);"),
        ("function a() { return b; } f();", "function a(){return b}f();"),
        ("function a() {}\nconst b = 1;\nf(b);", "const b=1;f(b);"),
        (
            "function a() { b(); }\nfunction b() { a(); }\nconst c = 2;",
            "function a(){b()}\nfunction b(){a()}",
        ),
        ("function a() { b(); }\nfunction b() {}\nconst c = 2;", ""),
        ("async function a({ x }, y = {}) { await x; }\nconst z = f();", "const z=f();"),
        ("const a = async (x) => { y(x); };\nlet b = (x) => x;\nconst c = x => x;", ""),
        ("const a = (x) => x, b = f();", "const a=(x)=>x,b=f();"),
        (
            "const a = 'a';\nconst b = /b/;\nconst c = `c`;\nconst d = new E();",
            "const c=`c`;const d=new E();",
        ),
        ("const a = 1;\nconst b = `${ a }`;", "const a=1;const b=`${a}`;"),
        ("const a = () => 1;\nclass B { a = 1; }", "const a=()=>1;class B{a=1}"),
        ("const a = (f()) + g;\nconst b = function () {};", "const a=(f())+g;const b=function(){};"),
        ("const a = () => 1; f();\nconst b = c;", "const a=()=>1;f();const b=c;"),
    ],
)
def test_only_what_does_nothing_by_being_there_is_left_out(text: str, result: str) -> None:
    assert trimmed(text) == result


def test_what_is_given_out_stays() -> None:
    assert trimmed("function a() {}\nfunction b() {}\nconst c = 1;", "a", "c") == "function a(){}\nconst c=1;"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("const a = true, b = !false;", "let a=!0,b=!!1;"),
        ("return true;", "return !0;"),
        ("f(x ? true : false);", "f(x?true:!1);"),
        ("x = { true: 1, const: 2, a: true }; y.true; y?.const;",
         "x={true:1,const:2,a:!0};y.true;y?.const;"),
        ("f({ a, b, }, [c, , ], d, );", "f({a,b},[c,,],d);"),
        ("for (const [a] of b) c(a, 'const true', /true/, `true`);",
         "for(let[a]of b)c(a,'const true',/true/,`true`);"),
        ("const a = 1; let b; const { c } = d; e(); let f = 2;", "let a=1,b,{c}=d;e();let f=2;"),
        ("const a = () => { const b = 1; let c; return c; }; let d;", "let a=()=>{let b=1,c;return c},d;"),
        ("for (let a = 0; a < 1; a++) { b(); let c; } const d = `${ a }`; let e;",
         "for(let a=0;a<1;a++){b();let c}let d=`${a}`,e;"),
        ("x.let; let a = { let: 1 }; y.let(); let b;", "x.let;let a={let:1};y.let();let b;"),
    ],
)  # fmt: skip
def test_what_can_be_written_shorter_means_the_same(text: str, result: str) -> None:
    assert script(spelt(tokens(text))) == result


def test_a_file_holds_nothing_of_a_module_that_none_of_its_files_means() -> None:
    sources = {
        "w/a.js": 'import { two } from "./b.js";\nimport("./c.js");\nexport const a = () => two();',
        "w/b.js": (
            "const three = 3;\nexport const one = () => 1;\nexport const two = () => three;\n"
            "export function four() {}"
        ),
        "w/c.js": 'import { one } from "./b.js";\nexport const c = one();',
    }
    out = pack(sources, [["w/a.js"]])
    assert "4" not in out["w/a.js"]
    assert "()=>1" in out["w/a.js"]
    assert out["w/a.js"].count("=3") == 1
    assert "function" not in out["w/a.js"]
