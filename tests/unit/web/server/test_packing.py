"""Modules are joined so that browsers cannot tell the difference, or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from web.bundling.modules import PackingRefused, read
from web.bundling.packing import pack
from web.server.pages import FIRST, STATIC, Files


def joined(sources: dict[str, str], first: list[list[str]]) -> dict[str, str]:
    """With the long names, so that one can read what became of them."""
    return pack(sources, first, short_names=False)


def packed(first: str = "w/a.js", **sources: str) -> dict[str, str]:
    """Files of one folder, by their names without the ending."""
    return joined({f"w/{name}.js": text for name, text in sources.items()}, [[first]])


def test_modules_are_joined_in_the_order_in_which_they_would_run() -> None:
    out = packed(
        a='import { b } from "./b.js";\nimport { c } from "./c.js";\nexport const a = b + c;',
        b='import { c } from "./c.js";\nexport const b = c + 1;',
        c="export const c = 1;",
    )
    assert out == {"w/a.js": "const c=1;\nconst b=c+1;\nconst a=b+c;\nexport{a};\n"}


def test_what_an_earlier_file_holds_is_taken_from_there() -> None:
    sources = {
        "w/main.js": (
            'import { h } from "../shared/h.js";\nexport const go = () => import("./chat.js").then(h);'
        ),
        "w/chat.js": 'import { h, svg } from "../shared/h.js";\nexport class Chat { x = h(svg); }',
        "shared/h.js": "export const h = 1, svg = 2;\nexport const rest = 3;",
    }
    assert joined(sources, [["w/main.js"], ["w/chat.js"]]) == {
        "w/main.js": (
            'const h=1,svg=2;const rest=3;\nconst go=()=>import("./chat.js").then(h);\nexport{go,h,svg};\n'
        ),
        "w/chat.js": 'import{h,svg}from"./main.js";\nclass Chat{x=h(svg)}\nexport{Chat};\n',
    }


def test_a_rare_group_is_a_file_of_its_own_and_shared_parts_exist_once() -> None:
    out = packed(
        a='import { s } from "./s.js";\nimport("./x.js");\nimport("./y.js");\ns();',
        s="let n = 0;\nexport const s = () => n++;",
        x=(
            'import { s } from "./s.js";\nimport { both } from "./both.js";\n'
            'import { own } from "./own.js";\nexport const x = s(both, own);'
        ),
        y='import { both } from "./both.js";\nexport const y = both;',
        both="export const both = 1;",
        own="export const own = 2;",
    )
    assert sorted(out) == ["w/a.js", "w/both.js", "w/x.js", "w/y.js"]
    assert "".join(out.values()).count("let n=0") == 1
    assert 'import{s}from"./a.js";\nimport{both}from"./both.js";\nconst own=2;' in out["w/x.js"]
    assert "export{s};" in out["w/a.js"]


def test_files_asked_for_together_are_one_file_under_the_first_name() -> None:
    sources = {
        "w/main.js": 'Promise.all([import("./chat.js"), import("./look.js")]);',
        "w/chat.js": "export const chat = 1;",
        "w/look.js": "export const look = 2;",
    }
    out = joined(sources, [["w/main.js"], ["w/chat.js", "w/look.js"]])
    assert out["w/main.js"] == 'Promise.all([import("./chat.js"),import("./chat.js")]);\n'
    assert out["w/chat.js"] == "const chat=1;\nconst look=2;\nexport{chat,look};\n"


def test_a_name_that_an_import_changes_is_kept_between_files() -> None:
    out = packed(
        a='import { t } from "./t.js";\nimport("./x.js");\nt();',
        t="export const t = 1;",
        x='import { t as common } from "./t.js";\nexport const t = common;',
    )
    assert out["w/x.js"] == 'import{t as common}from"./a.js";\nconst t=common;\nexport{t};\n'


def test_a_circle_inside_a_file_runs_as_it_always_did() -> None:
    out = packed(
        a='import { b } from "./b.js";\nexport function a() { return b(); }',
        b='import { a } from "./a.js";\nexport function b() { return a; }',
    )
    assert out["w/a.js"] == "function b(){return a}\nfunction a(){return b()}\nexport{a};\n"


def test_words_in_strings_patterns_templates_and_comments_mean_nothing() -> None:
    source = (
        "// import { x } from './nowhere.js'\n"
        "const a = \"import('./nowhere.js')\", b = /import('.\\/x')/, "
        'c = `import("./x.js") ${ 1 } export`;\n'
        "const d = { import: 1, export: 2, var: 3 }.import;\n"
        "export const e = a.export + d;"
    )
    out = packed(a=source)
    assert out["w/a.js"].startswith("const a=\"import('./nowhere.js')\",b=/import('.\\/x')/,c=`import(")
    assert out["w/a.js"].endswith("export{e};\n")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("export default 1;", "export default is not a plain named export"),
        ('export * from "./b.js";', r"export \* is not a plain named export"),
        ('export { b } from "./b.js";', "only export what it declares"),
        ("export { nothing };", "nothing is exported but not declared"),
        ('import * as b from "./b.js";', "{ is expected"),
        ('import b from "./b.js";', "{ is expected"),
        ('import { b } from "https://far.example/b.js";', "not the address of a module beside"),
        ('import { b } from "b";', "not the address of a module beside"),
        ("const to = './b.js';\nimport(to);", "one plain string"),
        ("import(`./b.js`);", "one plain string"),
        ('import { gone } from "./b.js";', "exports no gone"),
        ('import { b } from "./nowhere.js";', "no such file"),
        ('import("./nowhere.js");', "no such file"),
        (
            "const hidden = 1;\nx[0] { y }\nimport { b } from './b.js';",
            "hidden is declared by w/b.js too; rename one",
        ),
        ('import { b } from "./b.js";\nfunction b() {}', "b is declared twice"),
        ("const name = 1;", "name is a name of the browser's own"),
        ("export class Text {}", "Text is a name of the browser's own"),
        ("const { x } = y;", "one thing at a time"),
        ("const x = 1\nconst y = 2", "does not end with a semicolon"),
        ("if (a) { var x = 1; }", "var reaches out of its block"),
        ("if (a) { import { b } from './b.js'; }", "inside a block"),
        ("const x = {} / 2;", "may divide or begin a pattern"),
        ("const x = `open;", "no JavaScript"),
    ],
)
def test_what_is_not_plain_is_refused_loudly(source: str, reason: str) -> None:
    with pytest.raises(PackingRefused, match=reason) as refused:
        packed(a=source, b="const hidden = 0;\nexport const b = hidden;")
    assert "w/a.js" in str(refused.value)
    assert refused.value.advice


def test_what_two_modules_call_alike_gets_two_names_and_one_thing_gets_one() -> None:
    out = packed(
        a=(
            'import { b as c, t as common } from "./b.js";\nimport { d } from "./d.js";\n'
            "const t = (key) => ({ common, key });\nexport const a = (b) => t(c(b, t, d.t));"
        ),
        b="const hidden = (b) => b;\nexport const b = hidden, t = 2;\nexport const unused = () => t;",
        d=(
            'import { t } from "./b.js";\nconst hidden = () => { const t = 3; return t; };\n'
            "export const d = hidden(t);"
        ),
    )
    assert out["w/a.js"].splitlines() == [
        "const hidden=(b)=>b;const c=hidden,common=2;const unused=()=>common;",
        "const hidden$2=()=>{const t=3;return t};const d=hidden$2(common);",
        "const t=(key)=>({common,key});const a=(b)=>t(c(b,t,d.t));",
        "export{a};",
    ]


def test_what_another_module_means_by_itself_is_no_name_for_a_neighbour() -> None:
    out = packed(
        a='import { b } from "./b.js";\nb(queue);', b="const queue = 1;\nexport const b = () => queue;"
    )
    assert out["w/a.js"] == "const queue$2=1;const b=()=>queue$2;\nb(queue);\n"


def test_files_that_would_need_each_other_are_refused() -> None:
    with pytest.raises(PackingRefused, match=r"files would need each other: .*w/"):
        packed(
            a='import("./x.js");\nimport("./y.js");',
            x='import { y } from "./y.js";\nexport const x = () => y;',
            y='import { x } from "./x.js";\nexport const y = () => x;',
        )


def test_a_module_that_knows_its_own_address_stays_in_its_folder() -> None:
    sources = {
        "w/a.js": 'import { root } from "../shared/root.js";\nroot();',
        "shared/root.js": "export const root = () => import.meta.url;",
    }
    with pytest.raises(PackingRefused, match="asks for its own address"):
        joined(sources, [["w/a.js"]])
    assert joined({"w/a.js": "export const at = import.meta.url;"}, [["w/a.js"]])["w/a.js"].startswith(
        "const at=import.meta.url;"
    )


def test_only_the_last_module_of_a_file_may_wait() -> None:
    with pytest.raises(PackingRefused, match=r"w/b.js: it waits at its top"):
        packed(a='import { b } from "./b.js";\nb();', b="export const b = await 1;")
    assert packed(a="await 1;") == {"w/a.js": "await 1;\n"}


def test_two_exports_of_one_name_are_refused() -> None:
    with pytest.raises(PackingRefused, match="rename one"):
        joined(
            {
                "w/a.js": "const one = 1;\nexport { one as x };",
                "w/b.js": "const two = 2;\nexport { two as x };",
                "w/m.js": 'import("./a.js");\nimport("./b.js");',
            },
            [["w/m.js"], ["w/a.js", "w/b.js"]],
        )


def test_what_a_module_declares_is_read() -> None:
    module = read(
        "w/a.js",
        "const one = (a, b) => { const inner = 1; }, two = [1, 2];\nlet three;\nasync function four() {}\n"
        "export class Five {}\nfunction* six() {}\nexport { one as first };",
    )
    assert module.declared == {"one", "two", "three", "four", "Five", "six"}
    assert module.exports == {"first": "one", "Five": "Five"}


def test_the_widget_itself_is_packed() -> None:
    with capture_logs() as lines:
        files = Files()
    assert lines == []
    names = ("w/main.js", "w/chat.js", "w/page.js", "widget.js")
    for name in names:
        source, small = files.get(name), files.get(name, packed=True)
        assert source is not None
        assert small is not None
        assert source.body == (STATIC / name).read_bytes()
        assert b"/**" not in small.body
    assert files.get("w/menu.js", packed=True) != files.get("w/menu.js")
    assert FIRST[0][0] == "w/main.js"


def test_what_cannot_be_packed_is_served_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    loader = '/* loads */ import("static/w/main.js");'
    (tmp_path / "widget.js").write_text(loader)
    (tmp_path / "w" / "main.js").write_text("export default 1; // not plain")
    with capture_logs() as lines:
        files = Files(tmp_path)
    assert [line["event"] for line in lines] == ["widget not packed"]
    assert "w/main.js: export default" in lines[0]["reason"]
    assert files.get("w/main.js", packed=True) == files.get("w/main.js")
    assert files.widget is not None
    assert files.widget.body.decode() == loader.replace("static/", f"static-{files.digest}/")


def test_what_cannot_have_short_names_keeps_its_long_ones(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "main.js").write_text("export const long = 1; // why\nlong[0] { odd }")
    with capture_logs() as lines:
        files = Files(tmp_path)
    assert [line["event"] for line in lines] == ["widget keeps its long names"]
    main = files.get("w/main.js", packed=True)
    assert main is not None
    assert main.body == b"const long=1;long[0]{odd}\nexport{long};\n"


def test_a_changed_module_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    main = tmp_path / "w" / "main.js"
    main.write_text("export const a = 1;")
    first = Files(tmp_path)
    main.write_text("export const a = 1; // only a comment")
    assert Files(tmp_path)._packed["w/main.js"] == first._packed["w/main.js"]
    main.write_text("export const a = 2;")
    assert Files(tmp_path).digest != first.digest


def test_every_name_that_a_file_of_the_widget_takes_is_given_by_the_other() -> None:
    sources = {
        path.relative_to(STATIC).as_posix(): path.read_text()
        for folder in ("w", "shared")
        for path in (STATIC / folder).glob("*.js")
    }
    out = pack(sources, FIRST)
    given = {
        name: {
            one.split(" as ")[-1]
            for found in re.findall(r"export\{([^}]*)}", text)
            for one in found.split(",")
        }
        for name, text in out.items()
    }
    taken = [
        (f"w/{other}", one.split(" as ")[0])
        for text in out.values()
        for names, other in re.findall(r'^import\{([^}]*)}from"\./([^"]*)";', text, re.MULTILINE)
        for one in names.split(",")
    ]
    assert len(taken) > 50
    assert [(other, name) for other, name in taken if name not in given[other]] == []
