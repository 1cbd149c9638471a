"""What one module of the widget takes in, gives out and declares, read by strict rules."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from web.bundling.scripts import NotUnderstood, Token, tokens


class PackingRefused(Exception):
    """These modules cannot be joined without a risk; they must be served as they are."""

    advice = (
        "Follow the message and start again; until then browsers get the plain modules, only more of them."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    name: str
    imports: tuple[tuple[str, str, str], ...]
    """From which module, which export, under which name here."""
    needs: tuple[str, ...]
    """Modules in the order in which they are named."""
    exports: dict[str, str]
    """The name outside and the name inside."""
    declared: frozenset[str]
    dynamic: frozenset[str]
    """Modules that `import("./x.js")` asks for."""
    own_address: bool
    """It reads `import.meta`, so it may not move to another folder."""
    waits: bool
    """It awaits something before it is ready."""
    body: tuple[Token, ...]


_OWN = (
    "addEventListener alert atob blur btoa caches cancelAnimationFrame clearInterval clearTimeout close "
    "closed confirm console crypto customElements document event external fetch find focus frames history "
    "indexedDB innerHeight innerWidth length localStorage location matchMedia menubar moveBy moveTo name "
    "navigator open opener origin outerHeight outerWidth parent performance postMessage print prompt "
    "queueMicrotask removeEventListener reportError requestAnimationFrame resizeBy resizeTo screen screenX "
    "screenY scroll scrollBy scrollTo scrollX scrollY self sessionStorage setInterval setTimeout "
    "speechSynthesis status statusbar stop structuredClone toolbar top visualViewport window "
    "Array Blob CSS Boolean Comment DataTransfer Date Document Element Error Event File FileList FileReader "
    "FormData Headers History Image Infinity Intl JSON Location Lock Map Math NaN Node Notification Number "
    "Object Option Promise Proxy Range Reflect RegExp Request Response Selection Set String Symbol Text "
    "escape fence unescape Touch URL WeakMap WeakSet Worker globalThis isNaN parseFloat parseInt "
    "undefined arguments eval"
)
WINDOWS_OWN = frozenset(_OWN.split())
"""Names that another module of the same file may mean the browser's own thing by."""
_DECLARING = frozenset({"const", "let", "var", "function", "class"})
_STARTING = _DECLARING | {"import", "export", "async"}


def read(name: str, text: str) -> Module:
    """Raises PackingRefused with the module's name for everything that is not plain."""
    try:
        return _Reading(name, tokens(text)).module()
    except NotUnderstood as unclear:
        raise PackingRefused(f"{name}: {unclear}") from unclear


@dataclass(slots=True)
class _Reading:
    name: str
    all: list[Token]
    at: int = 0
    depth: int = 0
    imports: list[tuple[str, str, str]] = field(default_factory=list)
    needs: dict[str, None] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    dynamic: set[str] = field(default_factory=set)
    own_address: bool = False
    waits: bool = False
    body: list[Token] = field(default_factory=list)

    def module(self) -> Module:
        while self.at < len(self.all):
            self._step()
        here = [*self.declared, *(local for _, _, local in self.imports)]
        if twice := sorted({name for name in here if here.count(name) > 1}):
            raise self._refused(f"{', '.join(twice)} is declared twice")
        for inside in self.exports.values():
            if inside not in self.declared:
                raise self._refused(f"{inside} is exported but not declared here")
        return Module(
            name=self.name, imports=tuple(self.imports), needs=tuple(self.needs), exports=self.exports,
            declared=frozenset(self.declared), dynamic=frozenset(self.dynamic),
            own_address=self.own_address, waits=self.waits, body=tuple(self.body),
        )  # fmt: skip

    # ---- one step through the tokens ----

    def _step(self) -> None:
        token = self.all[self.at]
        alone = token.kind == "word" and not self._is_property()
        if alone and token.text == "import":
            return self._import()
        if alone and self.depth == 0 and token.text == "export":
            return self._export()
        if alone and token.text == "var":
            raise self._refused("var reaches out of its block; use const or let")
        if alone and self.depth == 0:
            self.waits |= token.text == "await"
            if token.text in _DECLARING:
                self.declared += self._names()
        self._keep(token)
        return None

    def _keep(self, token: Token) -> None:
        text = token.text
        if token.kind == "template":
            self.depth += text.endswith("${") - (text[0] == "}")
        elif token.kind == "mark":
            self.depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        self.body.append(token)
        self.at += 1

    def _is_property(self) -> bool:
        """`x.import` and `{ import: 1 }` name a property."""
        before = self.all[self.at - 1].text if self.at else ""
        return before in (".", "?.") or self._text(1) == ":"

    def _text(self, ahead: int) -> str:
        return self.all[self.at + ahead].text if self.at + ahead < len(self.all) else ""

    def _take(self, *wanted: str) -> str:
        text = self._text(0)
        if wanted and text not in wanted:
            raise self._refused(f"{wanted[0]} is expected where {text or 'the text'} stands")
        self.at += 1
        return text

    def _refused(self, why: str) -> PackingRefused:
        return PackingRefused(f"{self.name}: {why}")

    # ---- imports and exports ----

    def _import(self) -> None:
        if self._text(1) == ".":
            self.own_address = True
            self._keep(self.all[self.at])
        elif self._text(1) == "(":
            self._import_later()
        elif self.depth:
            raise self._refused("import stands inside a block")
        else:
            self._import_now()

    def _import_later(self) -> None:
        address = self.all[self.at + 2]
        if address.kind != "string" or self._text(3) != ")":
            raise self._refused("import() must be given one plain string")
        self.dynamic.add(self._resolved(address.text))
        self._keep(self.all[self.at])

    def _import_now(self) -> None:
        self._take("import")
        pairs: list[tuple[str, str]] = []
        if self.all[self.at].kind != "string":
            pairs = self._list()
            self._take("from")
        source = self._resolved(self._take())
        self._take(";")
        self.needs[source] = None
        if own := [local for _, local in pairs if local in WINDOWS_OWN]:
            raise self._refused(f"{own[0]} is a name of the browser's own; call it otherwise")
        self.imports += [(source, outside, local) for outside, local in pairs]

    def _export(self) -> None:
        self._take("export")
        if self._text(0) == "{":
            pairs = self._list()
            if self._text(0) == "from":
                raise self._refused("a module may only export what it declares")
            self._take(";")
            self.exports |= {outside: inside for inside, outside in pairs}
            return
        ahead = 1 if self._text(0) == "async" else 0
        if self._text(ahead) not in _DECLARING:
            raise self._refused(f"export {self._text(0)} is not a plain named export")
        self.exports |= {name: name for name in self._names(ahead)}

    def _list(self) -> list[tuple[str, str]]:
        """`{ a, b as c }` as pairs of the first and the last name."""
        out: list[tuple[str, str]] = []
        self._take("{")
        while self._text(0) != "}":
            first = last = self._take()
            if self._text(0) == "as":
                self._take("as")
                last = self._take()
            out.append((first, last))
            if self._text(0) != "}":
                self._take(",")
        self._take("}")
        return out

    def _resolved(self, quoted: str) -> str:
        address = quoted[1:-1]
        if quoted[0] not in "\"'" or "\\" in address or not address.startswith(("./", "../")):
            raise self._refused(f"{quoted} is not the address of a module beside this one")
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.name), address))

    # ---- declarations ----

    def _names(self, ahead: int = 0) -> Iterable[str]:
        """The names that the declaration at this place makes."""
        if self._text(ahead) in ("function", "class"):
            ahead += 1 + (self._text(ahead + 1) == "*")
            return [self._plain(ahead)]
        out = [self._plain(ahead + 1)]
        depth = 0
        for place in range(self.at + ahead + 2, len(self.all)):
            token = self.all[place]
            if token.kind == "template":
                depth += token.text.endswith("${") - (token.text[0] == "}")
            elif token.text in ("(", "[", "{", ")", "]", "}") and token.kind == "mark":
                depth += 1 if token.text in "([{" else -1
            elif not depth and token.text == "," and token.kind == "mark":
                out.append(self._plain(place + 1 - self.at))
            elif not depth and token.text == ";" and token.kind == "mark":
                return out
            elif not depth and token.newline and token.text in _STARTING:
                break
        raise self._refused(f"the declaration of {out[0]} does not end with a semicolon")

    def _plain(self, ahead: int) -> str:
        token = self.all[self.at + ahead] if self.at + ahead < len(self.all) else None
        if token is None or token.kind != "word":
            raise self._refused("a declaration at the top must name one thing at a time")
        if token.text in WINDOWS_OWN:
            raise self._refused(f"{token.text} is a name of the browser's own; call it otherwise")
        return token.text
