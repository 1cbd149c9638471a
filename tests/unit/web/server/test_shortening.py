"""Inner names become short; what has a name outside keeps it."""

from __future__ import annotations

from string import ascii_letters

import pytest

from web.bundling.modules import WINDOWS_OWN, PackingRefused
from web.bundling.packing import pack
from web.bundling.scripts import NotUnderstood, tokens
from web.bundling.shortening import Shortener
from web.bundling.squeezing import script


def short(text: str, *top: str) -> str:
    (body,) = Shortener([tokens(text)], top, WINDOWS_OWN, letters=ascii_letters).bodies()
    return script(body)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("f((one, two) => one.two + two);", "f((a,b)=>a.two+b);"),
        ("f(one => ({ one, two: one }));", "f(a=>({one:a,two:a}));"),
        ("f(({ one, two: { three }, ...rest }) => one + three + rest);",
         "f(({one:a,two:{three:b},...c})=>a+b+c);"),
        ("f(({ one = 1, two: other = one }) => other);", "f(({one:a=1,two:b=a})=>b);"),
        ("{ const [one, { two }] = x; one(two); }", "{const[a,{two:b}]=x;a(b)}"),
        ("try { x(); } catch (wrong) { y(wrong); }", "try{x()}catch(a){y(a)}"),
        ("try { x(); } catch ({ code }) { y(code); }", "try{x()}catch({code:a}){y(a)}"),
        ("for (const one of list) one.of(one);", "for(const a of list)a.of(a);"),
        ("for (let at = 0; at < 3; at++) f(at);", "for(let a=0;a<3;a++)f(a);"),
        ("x = { one(one) { return one; }, get two() { return 2; }, async three() {} };",
         "x={one(a){return a},get two(){return 2},async three(){}};"),
        ("x = class { one = 1; #two; static three = (three) => three; get(y) { return this.one + y; } }",
         "x=class{one=1;#two;static three=(a)=>a;get(a){return this.one+a}}"),
        ("f((one) => one ? one : { one });", "f((a)=>a?a:{one:a});"),
        ("f((one) => ({ one: one ? one : 1, two: one }));", "f((a)=>({one:a?a:1,two:a}));"),
        ("f((one) => { switch (one) { case one: { g(one); } } });", "f((a)=>{switch(a){case a:{g(a)}}});"),
        ("f((one) => { x = one ? y : { one }; });", "f((a)=>{x=a?y:{one:a}});"),
        ("f((one) => `one ${ one } ${ { one }.one }`);", "f((a)=>`one ${a} ${{one:a}.one}`);"),
        ("f((one) => 'one' + /one/.test(one?.one));", "f((a)=>'one'+/one/.test(a?.one));"),
        ("f((one, two) => one + two + a); g((three) => b + three);", "f((c,d)=>c+d+a);g((c)=>b+c);"),
        ("f((name) => name + document);", "f((name)=>name+document);"),
        ("f(async (one) => await one);", "f(async(a)=>await a);"),
        ("f(function* (one) { yield one; });", "f(function*(a){yield a});"),
        ("f((one) => { if (one) return { one }; else { g(one); } });",
         "f((a)=>{if(a)return{one:a};else{g(a)}});"),
        ("f((get, set, from) => ({ get, set, from }));", "f((a,b,c)=>({get:a,set:b,from:c}));"),
    ],
)  # fmt: skip
def test_only_what_is_declared_gets_another_name(text: str, result: str) -> None:
    assert short(text) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("f((one) => { g((two) => one + two); h((two, one) => two + one); });",
         "f((a)=>{g((b)=>a+b);h((a,b)=>a+b)});"),
        ("f((one) => x ? (two) => one + two : (two) => two, (one) => one);",
         "f((a)=>x?(b)=>a+b:(a)=>a,(a)=>a);"),
        ("f({ one: (two) => two ? 1 : 2, three: two }, [(one) => one, one]);",
         "f({one:(a)=>a?1:2,three:two},[(a)=>a,one]);"),
        ("f(`${ list.map((one) => one) } ${ one }`);", "f(`${list.map((a)=>a)} ${one}`);"),
        ("f((one) => (two) => (three) => one + two, one);", "f((a)=>(b)=>(c)=>a+b,one);"),
        ("f(async function (one) { const two = one; { const three = two; g(three); } x((two) => two); });",
         "f(async function(a){const b=a;{const c=b;g(c)}x((a)=>a)});"),
        ("f((one) => { { const one = 1; g(one); } return one; });",
         "f((a)=>{{const a=1;g(a)}return a});"),
        ("f((one) => { for (const two of one) g(two); return () => two; });",
         "f((b)=>{for(const a of b)g(a);return()=>a});"),
        ("f((one) => { try { g(one); } catch (two) { h((one) => two); } });",
         "f((a)=>{try{g(a)}catch(a){h((b)=>a)}});"),
        ("f((one) => { function two(three) { return one + three; } return two(two); });",
         "f((b)=>{function a(a){return b+a}return a(a)});"),
        ("f((one = two, three = (four) => one) => { const { two: five = one, ...six } = three; });",
         "f((a=two,b=(b)=>a)=>{const{two:c=a,...d}=b});"),
        ("f((one) => one\n  .two((three) => three)\n  || one);", "f((a)=>a.two((a)=>a)||a);"),
    ],
)  # fmt: skip
def test_each_function_begins_anew_with_what_it_does_not_mean(text: str, result: str) -> None:
    assert short(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "x = (one) => one\none(two);",
        "x = { one: (two) => two\n{ two } };",
        "f((one = () => two) => { const two = 1; return one() + two; });",
    ],
)
def test_where_nobody_knows_how_far_a_name_goes_it_stays(text: str) -> None:
    with pytest.raises(NotUnderstood):
        short(text)


def test_names_of_the_top_are_the_same_in_every_part() -> None:
    text = "function first(one) { return second(one); }\nfunction second(two) { return first(two); }"
    result = "function aa(a){return ab(a)}\nfunction ab(a){return aa(a)}"
    assert short(text, "first", "second") == result


def test_a_short_name_is_never_one_that_means_something_outside() -> None:
    text = "function outer(one) { return a(one) + b; }\nfunction other(one) { return aa + one; }"
    assert short(text, "outer", "other") == "function ac(c){return a(c)+b}\nfunction ab(c){return aa+c}"


def test_what_is_asked_for_by_name_keeps_it_and_between_files_one_short_name_is_enough() -> None:
    out = pack(
        {
            "w/a.js": (
                'import { h } from "./h.js";\n'
                'export const go = (box) => import("./b.js").then(({ big }) => big(h, box));'
            ),
            "w/b.js": 'import { h } from "./h.js";\nexport const big = (one) => h(one);',
            "w/h.js": "export const h = 1;",
        },
        [["w/a.js"]],
    )
    assert out["w/a.js"] == (
        'let ee=1;\nlet et=(e)=>import("./b.js").then(({big:t})=>t(ee,e));\nexport{ee,et as go};\n'
    )
    assert out["w/b.js"] == 'import{ee}from"./a.js";\nlet et=(e)=>ee(e);\nexport{et as big};\n'


@pytest.mark.parametrize("text", ["x = { one two };", "x[0] { y }", "x = `a` { y }"])
def test_what_stands_in_braces_is_known_or_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        short(text)
    with pytest.raises(PackingRefused, match=r"w/a\.js"):
        pack({"w/a.js": text}, [["w/a.js"]])
