"""Answers that have broken renderers: each with the code that must come out of it unchanged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    markdown: str
    blocks: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()


SAMPLES: dict[str, Sample] = {
    "code with everything in it": Sample(
        markdown='Try:\n\n```python\nif a < b && c:\n    print(f"{x}")  # `t` *s* _u_ \\n | > \n```\n\nThen **go**.',
        blocks=('if a < b && c:\n    print(f"{x}")  # `t` *s* _u_ \\n | > ',),
        shows=("Then go.",),
    ),
    "a fence within a fence": Sample(
        markdown="````md\n```py\nx = '```'\n```\n````\nend", blocks=("```py\nx = '```'\n```",), shows=("end",)
    ),
    "a fence nobody closed": Sample(
        markdown="See:\n\n```js\nlet a = `t${1}`;\n\n// **not bold**",
        blocks=("let a = `t${1}`;\n\n// **not bold**",),
    ),
    "fences of tildes and odd languages": Sample(
        markdown='```c++\nint a;\n```\n~~~yaml\na: 1\n~~~\n``` {.rust #id}\nfn x() {}\n```\n```objective-c title="a b"\nid\n```',
        blocks=("int a;", "a: 1", "fn x() {}", "id"),
    ),
    "code in a list": Sample(
        markdown="1. Run\n   ```sh\n   ls -la | grep x\n\n     indented\n   ```\n2. Then\n\n   - deep\n\n         four more\n",
        blocks=("ls -la | grep x\n\n  indented", "four more"),
        shows=("1. Run", "2. Then"),
    ),
    "indented code": Sample(markdown="Text:\n\n    a  b\n      c\n\nend", blocks=("a  b\n  c",)),
    "empty fences": Sample(markdown="a\n\n```\n```\n\n```py\n\n\n```\nb", shows=("a", "b")),
    "two fences that touch": Sample(markdown="```\na\n```\n```\nb\n```", blocks=("a", "b")),
    "inline code": Sample(
        markdown="``a`b`` and `\\` and `` ` `` and `<b>` and `a_b*c*d` and `  two  ` end",
        codes=("a`b", "\\", "`", "<b>", "a_b*c*d", " two "),
    ),
    "code in everything": Sample(
        markdown="# Head `h_1` end\n**bold `b*2` bold** *it `i` it* ~~s `s` s~~ [`l()` link](https://e.org/x)\n> quote `q`",
        codes=("h_1", "b*2", "i", "s", "q"),
        shows=("l() link",),
    ),
    "emphasis that crosses": Sample(
        markdown="***bi*** **b _i_ b** *a **b** c* **a *b** c* *x **y* z** **a***b* ****four**** _x__y_ ~~a **b~~ c**"
    ),
    "names and sums": Sample(
        markdown="call my_func_name, __init__.py, obj.__dict__, 2*3*4 = 24, a*b, foo_bar_, *args, **kwargs, C:\\path\\to, 5 > 3",
        shows=(
            "my_func_name",
            "__init__.py",
            "obj.__dict__",
            "2*3*4 = 24",
            "foo_bar_",
            "*args, **kwargs",
            "C:\\path\\to",
        ),
    ),
    "CJK without spaces": Sample(
        markdown="这是**重点：**内容，还有*斜体*和~~删除~~。**「引用」**です。",
        shows=("重点：内容", "「引用」です"),
    ),
    "a wide table": Sample(
        markdown="Prices:\n\n| Name | Qty | 価格 |\n|:-----|:--:|-----:|\n| Apple \\| pear | 3 | $1.20 |\n| 名前 | `x` | **9** |\n"
        "| 👍🏽 | | [doc](https://e.org/d) |\n\nafter",
        shows=("after", "doc"),
    ),
    "a table without borders": Sample(markdown="a | b\n--- | ---\n1 | 2\n3\n\nnext", shows=("a | b", "next")),
    "a table of one cell in a list": Sample(
        markdown="- x\n\n  | a |\n  |---|\n  | b |\n- y", shows=("• x", "• y")
    ),
    "lists in lists": Sample(
        markdown="1. One\n   - a\n     - deep **b**\n       1. deeper\n   - c\n\n     second paragraph\n2. Two\n\n   more\n\n7) other\n+ plus\n-",
        shows=("1. One", "◦ a", "▪ deep b", "1. deeper", "2. Two"),
    ),
    "tasks and rules": Sample(
        markdown="---\n- [ ] open\n- [x] done\n- [X] too\n***\n* [link]\n",
        shows=("☐ open", "☑ done", "☑ too", "[link]"),
    ),
    "a list that begins with code": Sample(
        markdown="- ```\n  x\n  ```\n- > q\n- # h\n- - - a\n- 1. b", blocks=("x",)
    ),
    "quotes in quotes": Sample(
        markdown="> one **b**\n> two\n>> nested\n>>> deeper\n> - item\n>\n> ```\n> code\n> ```\n> end\n\nout\n\n> a\n\n> b",
        blocks=("code",),
        shows=("out",),
    ),
    "links": Sample(
        markdown='[a](http://x.com/a_(b)) [**b** c](https://e.org/?q=1&r="2") [rel](/docs/x) <https://auto.link/x_y> [e]() '
        "[ref][1] [t](https://e.org 'title') [sp](<https://e.org/a b>) [nohost](https://localhost/x) [port](https://e.org:0/)\n\n"
        "[1]: https://ref.example/",
        shows=("[ref][1]", "[1]: https://ref.example/", "rel (/docs/x)"),
    ),
    "addresses that must not live": Sample(
        markdown="[js](javascript:alert(1)) [tg](tg://resolve?domain=x) tg://join?invite=a ton://x [d](data:text/html,x) <tg://user?id=1>"
        " [m](mailto:a@b.de) [t](tel:+49301) [v](VBScript:x) [f](file:///etc/passwd)",
        codes=(
            "javascript:alert(1)",
            "tg://resolve?domain=x",
            "tg://join?invite=a",
            "ton://x",
            "tg://user?id=1",
            "VBScript:x",
            "file:///etc/passwd",
        ),
        shows=("m (a@b.de)", "t (+49301)"),
    ),
    "pictures": Sample(
        markdown="![alt *x*](https://e.com/a.png) text ![](https://e.com/b.png) ![x][y] [![in](https://e.com/c.png)](https://e.org)",
        shows=("text", "![x][y]"),
    ),
    "raw HTML": Sample(
        markdown='<b>bold</b> <script>alert(1)</script>\n<div class="x">\nd\n</div>\na < b <br> &amp; &lt;tag&gt; &copy; &nope; <!-- c -->',
        shows=(
            "<b>bold</b>",
            "<script>alert(1)</script>",
            '<div class="x">',
            "& <tag> © &nope;",
            "<!-- c -->",
        ),
    ),
    "details": Sample(
        markdown="<details>\n<summary>More *here*</summary>\n\nBody **b**\n\n</details>",
        shows=("<details>", "</details>", "Body b"),
    ),
    "formulas": Sample(
        markdown="$E=mc^2$ and \\(a_b * c_d\\) and $x_1 * x_2$\n\n$$\n\\int_0^1\n+ b_i\n- c\n$$\n\n\\[ x^2 \\]\nIt costs $5 and $10, not $x.",
        shows=(
            "$E=mc^2$",
            "\\(a_b * c_d\\)",
            "$x_1 * x_2$",
            "$$\n\\int_0^1\n+ b_i\n- c\n$$",
            "\\[ x^2 \\]",
            "$5 and $10, not $x.",
        ),
    ),
    "pictures of people and letters from the right": Sample(
        markdown="👨‍👩‍👧‍👦 **bold 🏳️‍🌈 text** e\u0301 _שלום עולם_ 🇩🇪🇫🇷 `код 🧑🏽‍💻` ✌🏽 [🚀](https://e.org) ~~🅰️~~",
        codes=("код 🧑🏽‍💻",),
    ),
    "signs nobody sees": Sample(
        markdown="a\x00b\u200b\u202ex **b**\r\nnext\ttab\x1b[0m \ud83d \u2028 end\rlast", shows=("last",)
    ),
    "escapes": Sample(
        markdown="\\*not bold\\* \\_x\\_ \\# \\[a\\](b) \\`c\\` 1\\. x \\\\ \\> end\\",
        shows=("*not bold* _x_ # [a](b) `c` 1. x \\ > end\\",),
    ),
    "footnotes and mentions": Sample(
        markdown="Text[^1] @user_name #tag /start a_b@c.de +1-202-555-0101\n\n[^1]: note\n[^2]: The `code`.",
        codes=("code",),
        shows=("Text[^1] @user_name", "[^1]: note"),
    ),
    "headings": Sample(
        markdown="# H1 *it*\n## H2 ##\n### [l](https://e.org) `c`\n#nospace\n####### seven\n#\nParagraph\n---\nafter\n===",
        codes=("c",),
        shows=("#nospace", "Paragraph", "==="),
    ),
    "bars and thoughts": Sample(
        markdown="a || b || c, ||spoiler||\n<think>x</think>\n|x|\n|",
        shows=("a || b || c", "<think>x</think>"),
    ),
    "many stars": Sample(
        markdown="*" * 30 + "a" + "_" * 30 + "\n" + "[" * 30 + "]" * 30 + "(" * 20 + "`" * 29
    ),
    "very deep": Sample(markdown=">" * 120 + " bottom\n" + "- " * 90 + "floor", shows=("bottom", "floor")),
    "nothing but blanks": Sample(markdown="   \n\n \t "),
    "nothing to see": Sample(markdown="\u200b\u2060 \ufeff\n\n```\n \n```"),
}

WHOLE = """# Plan

Let's do **three** things, with `code` and _care_ — see [the docs](https://e.org/a_(b)) 👍🏽:

1. First, a ~~bad~~ good *idea **with** stress*
   - nested `x_y`
   - and more
2. Second

```python
def f(a_b):
    return a_b ** 2  # *x* <y> & `z` | t
```

| Name | Worth | Where |
|:-----|------:|-------|
| Ann | **12** | [home](https://e.org/home) |
| 名前 | `9` | - |

> quote with ~~strike~~
> - and a list

- [ ] open
- [x] done

---
Final: 2*3*4 is 24, snake_case_name & <tag> $5, `a` **b** $x_1$ and **the end**."""
