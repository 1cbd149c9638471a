/** Draws formulas in TeX as MathML, node by node. A formula with an unknown command stays code. */
import { set } from "../shared/h.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const MOST_CHARS = 5000;
const MOST_DEPTH = 60;
const WIDE = 60;

/** @param {string} words in pairs */
const table = (words) => {
  const all = words.trim().split(/\s+/);
  return new Map(all.flatMap((name, at) => (at % 2 ? [] : [/** @type {[string, string]} */ ([name, all[at + 1]])])));
};
const LETTERS = table(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ omicron ο
  pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ
  Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ emptyset ∅ varnothing ∅ imath ı jmath ȷ wp ℘ angle ∠ triangle △
  square □ blacksquare ■ prime ′ degree ° top ⊤ bot ⊥ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ dotsc … dotsb ⋯ complement ∁ hslash ℏ Box □ diamond ⋄ star ⋆ checkmark ✓
  clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ flat ♭ natural ♮ sharp ♯ $ $ % % # # & & _ _`);
const OPERATORS = table(`cdot ⋅ times × div ÷ pm ± mp ∓ ast ∗ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ land ∧ vee ∨ lor ∨ cap ∩ cup ∪ setminus ∖ neg ¬ lnot ¬
  le ≤ leq ≤ leqslant ≤ ge ≥ geq ≥ geqslant ≥ ne ≠ neq ≠ lt < gt > ll ≪ gg ≫ equiv ≡ sim ∼ simeq ≃ approx ≈ cong ≅ propto ∝ prec ≺ succ ≻ preceq ⪯ succeq ⪰ doteq ≐ asymp ≍ models ⊨ vdash ⊢ dashv ⊣
  in ∈ ni ∋ notin ∉ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ mid ∣ nmid ∤ parallel ∥ perp ⊥ forall ∀ exists ∃ nexists ∄ therefore ∴ because ∵ colon : coloneqq ≔ triangleq ≜
  to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ implies ⟹ Leftarrow ⇐ impliedby ⟸ Leftrightarrow ⇔ iff ⟺ mapsto ↦ longmapsto ⟼ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹
  Longleftrightarrow ⟺ hookrightarrow ↪ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓ nearrow ↗ searrow ↘ rightleftharpoons ⇌ rightharpoonup ⇀ leadsto ⇝
  langle ⟨ rangle ⟩ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ | ‖ { { } } lbrace { rbrace } lbrack [ rbrack ] backslash \\ bigtriangleup △ uplus ⊎ sqcap ⊓ sqcup ⊔ amalg ⨿ dagger † ddagger ‡ wr ≀ bmod mod`);
const LARGE = table("sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀ bigsqcup ⨆ biguplus ⨄ bigodot ⨀");
const INTEGRALS = table("int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯");
const LIMITS = new Set("lim max min sup inf det gcd Pr limsup liminf argmax argmin injlim projlim".split(" "));
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim hom ker arg sgn tr rank diag mod".split(" "));
const SPACES = table("! -.167em , .167em > .222em : .222em ; .278em quad 1em qquad 2em enspace .5em thinspace .167em");
const ACCENTS = table("hat ^ widehat ^ bar ¯ vec → overrightarrow → overleftarrow ← dot ˙ ddot ¨ dddot ⃛ tilde ~ widetilde ~ check ˇ breve ˘ acute ´ grave ` mathring ˚ overbrace ⏞ overbracket ⎴");
const BELOW = table("underbrace ⏟ underrightarrow → underbracket ⎵");
const WORDS = new Set("text textrm textnormal textit textbf textsf texttt mbox mathrm operatorname".split(" "));
const ARROWS = table("xrightarrow → xleftarrow ← xRightarrow ⇒ xleftrightarrow ↔ xmapsto ↦ xrightleftharpoons ⇌");
const FENCES = new Map(Object.entries({ pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "‖‖", cases: "{", rcases: " }" }));
const GRIDS = new Set("matrix smallmatrix array aligned alignedat align align* gathered gather gather* split equation equation* eqnarray eqnarray* multline multline*".split(" "));
const NOTHING = new Set("limits nolimits displaystyle textstyle scriptstyle nonumber notag hfill allowbreak relax".split(" "));
/** Code points at which the capitals, small letters and digits of an alphabet begin, and letters that are elsewhere. @type {Record<string, [number, number, number, string?]>} */
const ALPHABETS = {
  mathbb: [0x1d538, 0x1d552, 0x1d7d8, "CℂHℍNℕPℙQℚRℝZℤ"], mathcal: [0x1d49c, 0x1d4b6, 0, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"], mathfrak: [0x1d504, 0x1d51e, 0, "CℭHℌIℑRℜZℨ"],
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6], mathit: [0x1d434, 0x1d44e, 0, "hℎ"],
};
ALPHABETS.mathscr = ALPHABETS.mathcal;

class Unknown extends Error {}

/** @param {string} tag @param {Record<string, any>} attributes @param {...(Node | string)} children */
function m(tag, attributes, ...children) {
  const node = document.createElementNS(MATHML, tag);
  set(node, attributes);
  node.append(...children);
  return node;
}
/** @param {Node[]} nodes */
const row = (nodes) => (nodes.length === 1 ? nodes[0] : m("mrow", {}, ...nodes));
/** @param {string} sign @param {Record<string, any>} [more] */
const operator = (sign, more = {}) => m("mo", more, sign);
/** @param {string} width */
const space = (width) => m("mspace", { width });
/** Returns a formula between brackets that are as high as it. @param {string} open @param {Node} inner @param {string} [close] */
const fenceFormula = (open, inner, close = "") => m("mrow", {}, operator(open.trim(), { stretchy: "true", form: "prefix" }), inner, operator(close, { stretchy: "true", form: "postfix" }));

/** @param {string} name @param {string} text */
function styleText(name, text) {
  const [large, small, digits, apart = ""] = ALPHABETS[name];
  return [...text].map((char) => {
    const known = apart.indexOf(char);
    if (known >= 0 && /[A-Za-z]/.test(char)) return apart[known + 1];
    const [start, from] = /[A-Z]/.test(char) ? [large, 65] : /[a-z]/.test(char) ? [small, 97] : /\d/.test(char) && digits ? [digits, 48] : [0, 0];
    return start ? String.fromCodePoint(start + char.charCodeAt(0) - from) : char;
  }).join("");
}

/** @param {string} tex @returns {Node} */
function read(tex) {
  const tokens = tex.match(/\\(?:operatorname\*|[A-Za-z]+|[^])|[^\S ]| +|[^]/gu) ?? [];
  let at = 0;
  let depth = 0;
  const peek = () => { while (/^\s+$/.test(tokens[at] ?? "")) at++; return tokens[at]; };
  const next = () => { const token = peek(); at++; return token; };
  /** @param {string} token */
  const take = (token) => peek() === token && ++at > 0;
  const lines = [until()];
  while (take("\\\\")) lines.push(until());
  if (peek() !== undefined) throw new Unknown(tokens[at]);
  return lines.length === 1 ? row(lines[0]) : m("mtable", { displaystyle: "true" }, ...lines.map((nodes) => m("mtr", {}, m("mtd", {}, ...nodes))));

  /** Reads everything up to one of these ends, which is not consumed. @param {...string} ends */
  function until(...ends) {
    if (++depth > MOST_DEPTH) throw new Unknown("too deep");
    /** @type {Node[]} */
    const out = [];
    for (let token = peek(); token !== undefined && !ends.includes(token); token = peek()) {
      if (/^([}&]|\\\\|\\right|\\end|\\middle)$/.test(token)) {
        if (token !== "\\middle" || !ends.includes("\\right")) break;
        at++;
        out.push(operator(delimiter(), { stretchy: "true" }));
      } else out.push(...term());
    }
    depth--;
    return out;
  }

  /** @param {string} token */
  function need(token) {
    if (!take(token)) throw new Unknown(`no ${token}`);
  }

  /** Reads a group in braces, or the next sign alone. */
  function argument() {
    if (take("{")) { const inner = row(until("}")); need("}"); return inner; }
    if (/^\d$/.test(peek() ?? "")) return m("mn", {}, /** @type {string} */ (next()));
    const [node, ...more] = atom();
    if (!node || more.length) throw new Unknown("an argument");
    return node;
  }

  /** Reads the raw text between braces, or the next character. */
  function raw() {
    if (!take("{")) return next() ?? "";
    let open = 1;
    let text = "";
    for (; at < tokens.length; at++) {
      open += tokens[at] === "{" ? 1 : tokens[at] === "}" ? -1 : 0;
      if (!open) break;
      text += tokens[at];
    }
    need("}");
    return text;
  }

  /** @returns {string} */
  function delimiter() {
    const token = next();
    if (token === undefined) throw new Unknown("no delimiter");
    const mark = token === "." ? "" : token === "<" ? "⟨" : token === ">" ? "⟩" : token[0] === "\\" ? OPERATORS.get(token.slice(1)) : token;
    if (mark === undefined || [...mark].length > 1) throw new Unknown(token);
    return mark;
  }

  /** Reads an atom with its superscript and subscript. @returns {Node[]} */
  function term() {
    const first = peek();
    const name = first?.[0] === "\\" ? first.slice(1) : "";
    const base = first === "^" || first === "_" ? [m("mrow", {})] : atom();
    let [low, high] = /** @type {(Node | null)[]} */ ([null, null]);
    let primes = "";
    for (;;) {
      if (peek() === "\\limits" || peek() === "\\nolimits") at++;
      else if (take("'")) primes += "′";
      else if (!low && take("_")) low = argument();
      else if (!high && take("^")) high = argument();
      else break;
    }
    const function_ = FUNCTIONS.has(name);
    if (low || high) {
      const around = LARGE.has(name) || LIMITS.has(name) || /^(under|over)brace$/.test(name);
      const tag = low && high ? (around ? "munderover" : "msubsup") : low ? (around ? "munder" : "msub") : around ? "mover" : "msup";
      const last = base.pop() ?? m("mrow", {});
      base.push(m(tag, {}, last, .../** @type {Node[]} */ ([low, high].filter(Boolean))));
    }
    if (primes) base.push(operator(primes, { lspace: "0", rspace: "0" }));
    if (function_ && !/^[([|]?$/.test(peek() ?? "") && peek() !== "\\left") base.push(space(".167em"));
    return base;
  }

  /** @returns {Node[]} */
  function atom() {
    if (++depth > MOST_DEPTH) throw new Unknown("too deep");
    const out = sign(next());
    depth--;
    return out;
  }

  /** @param {string | undefined} token @returns {Node[]} */
  function sign(token) {
    if (token === undefined || /^[}&^_]$/.test(token)) throw new Unknown(token ?? "the end");
    if (token === "{") { const inner = row(until("}")); need("}"); return [inner]; }
    if (token === "~") return [space(".333em")];
    if (/^\d$/.test(token) || (token === "." && /^\d$/.test(tokens[at] ?? ""))) {
      let digits = token;
      while (/^\d$/.test(tokens[at] ?? "") || (/^[.,]$/.test(tokens[at] ?? "") && /^\d$/.test(tokens[at + 1] ?? ""))) digits += tokens[at++];
      return [m("mn", {}, digits)];
    }
    if (token[0] === "\\") return command(token.slice(1));
    if (/^[\p{L}\p{M}]$/u.test(token)) return [m("mi", {}, token)];
    return [operator(token === "-" ? "−" : token === "*" ? "∗" : token, /^[()[\]|/]$/.test(token) ? { stretchy: "false" } : {})];
  }

  /** @param {string} name @returns {Node[]} */
  function command(name) {
    const letter = LETTERS.get(name);
    if (letter) return [m("mi", {}, letter)];
    const plain = OPERATORS.get(name);
    if (plain) return [operator(plain, /^[{}[\]|‖⟨⟩⌈⌉⌊⌋]$/.test(plain) ? { stretchy: "false" } : {})];
    const large = LARGE.get(name) ?? INTEGRALS.get(name);
    if (large) return [operator(large, LARGE.has(name) ? { movablelimits: "true" } : {})];
    if (LIMITS.has(name)) return [operator(name.replace(/^(lim|arg)(?=.)/, "$1\u2009"), { movablelimits: "true", form: "prefix" })];
    if (FUNCTIONS.has(name)) return [m("mi", {}, name)];
    if (/^\s$/.test(name)) return [space(".333em")];
    const width = SPACES.get(name);
    if (width) return [space(width)];
    if (NOTHING.has(name)) return [];
    if (WORDS.has(name) || name === "operatorname*") return [m(/^(mathrm|operator)/.test(name) ? "mi" : "mtext", { mathvariant: "normal" }, words(raw()))];
    if (name in ALPHABETS) return [m("mi", { mathvariant: "normal" }, styleText(name, simple(raw())))];
    if (/^[dtc]?frac$/.test(name)) return [m("mfrac", {}, argument(), argument())];
    if (/^[dt]?binom$/.test(name)) return [fenceFormula("(", m("mfrac", { linethickness: "0" }, argument(), argument()), ")")];
    if (name === "sqrt") return [root()];
    const over = ACCENTS.get(name);
    if (over) return [m("mover", { accent: "true" }, argument(), operator(over, { stretchy: String(/^(wide|over)/.test(name)) }))];
    const under = BELOW.get(name);
    if (under) return [m("munder", {}, argument(), operator(under, { stretchy: "true" }))];
    const arrow = ARROWS.get(name);
    if (arrow) {
      const below = take("[") ? row(until("]")) : null;
      if (below) need("]");
      return [m(below ? "munderover" : "mover", {}, operator(arrow, { stretchy: "true" }), ...(below ? [below] : []), argument())];
    }
    if (/^(overset|stackrel)$/.test(name)) { const above = argument(); return [m("mover", {}, argument(), above)]; }
    if (name === "underset") { const below = argument(); return [m("munder", {}, argument(), below)]; }
    if (name === "left") return [pair()];
    if (/^([bB]igg?)[lrm]?$/.test(name)) return [operator(delimiter(), { stretchy: "true", minsize: `${{ big: 1.2, Big: 1.6, bigg: 2, Bigg: 2.6 }[name.replace(/[lrm]$/, "")]}em` })];
    if (name === "begin") return [environment()];
    if (name === "not") return [operator(`${argument().textContent}\u0338`)];
    if (/^(boxed|overline|underline)$/.test(name)) return [m("mrow", { class: name }, argument())];
    if (name === "pmod") return [space("1em"), fenceFormula("(", m("mrow", {}, m("mi", {}, "mod"), space(".333em"), argument()), ")")];
    if (name === "tag") return [space("2em"), m("mtext", {}, `(${words(raw())})`)];
    throw new Unknown(name);
  }

  /** Reads text among signs; formulas within it are not recognised. @param {string} text */
  function words(text) {
    if (/[\\$]/.test(text.replace(/\\[ %$#&_{}]/g, ""))) throw new Unknown(text);
    return text.replace(/\\([ %$#&_{}])|[{}~]/g, (all, char) => char ?? (all === "~" ? " " : "")).replace(/^ | $/g, "\u00a0");
  }

  /** @param {string} text */
  function simple(text) {
    const letters = text.trim().replace(/^\\(\w+)$/, (all, name) => LETTERS.get(name) ?? all);
    if (/[\\{}^_&]/.test(letters)) throw new Unknown(text);
    return letters;
  }

  function root() {
    if (!take("[")) return m("msqrt", {}, argument());
    const index = row(until("]"));
    need("]");
    return m("mroot", {}, argument(), index);
  }

  function pair() {
    const open = delimiter();
    const inner = row(until("\\right"));
    need("\\right");
    return fenceFormula(open, inner, delimiter());
  }

  function environment() {
    const name = raw();
    const fence = FENCES.get(name);
    if (fence === undefined && !GRIDS.has(name)) throw new Unknown(name);
    const columns = /^(array|alignedat)$/.test(name) ? raw() : "";
    const aligned = /^(align|split|eqn)/.test(name);
    /** @type {Element[][]} */
    const lines = [[]];
    for (;;) {
      const line = lines[lines.length - 1];
      const side = aligned ? (line.length % 2 ? "left" : "right") : /cases/.test(name) ? "left" : { l: "left", r: "right" }[columns.replace(/[^lcr]/g, "")[line.length] ?? ""];
      take("\\hline");
      line.push(m("mtd", side ? { vars: { "text-align": side, ...(aligned && { [`padding-${line.length % 2 ? "left" : "right"}`]: 0 }) } } : {}, ...until()));
      if (take("\\\\")) lines.push([]);
      else if (!take("&")) break;
    }
    need("\\end");
    if (raw() !== name) throw new Unknown(name);
    const last = lines[lines.length - 1];
    if (lines.length > 1 && last.length === 1 && !last[0].childNodes.length) lines.pop();
    const grid = m("mtable", /matrix|array/.test(name) ? {} : { displaystyle: "true" }, ...lines.map((cells) => m("mtr", {}, ...cells)));
    return fence ? fenceFormula(fence[0], grid, fence[1]) : grid;
  }
}

/**
 * Returns the formula as MathML; null if any part of it is unknown.
 * @param {string} tex @param {boolean} wide on a line of its own @returns {Element | null}
 */
export function formula(tex, wide) {
  if (tex.length > MOST_CHARS) return null;
  try {
    return m("math", { display: wide ? "block" : null, alttext: tex }, read(tex));
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}

/** Replaces the code of a formula by the formula; a long one can be scrolled. @param {HTMLElement} code @param {string} tex @param {boolean} wide */
export function place(code, tex, wide) {
  const drawn = formula(tex, wide);
  if (!drawn) return;
  const figure = wide || tex.length > WIDE ? document.createElement("figure") : null;
  if (figure) {
    set(figure, { class: "formula", dir: "ltr", tabindex: 0, "aria-label": tex });
    figure.append(drawn);
  }
  code.replaceWith(figure ?? drawn);
}
