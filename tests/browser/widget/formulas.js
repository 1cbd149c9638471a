/** Makes up formulas and texts around them, and says where drawing them loses or invents anything. */
async (rounds) => {
  const { formula } = await import("/static/widget/math.js");
  const { render } = await import("/static/widget/md.js");
  const tools = { copy() {}, labels: { copy: "" } };
  let seed = 7;
  const chance = (most) => (seed = (seed * 48271) % 2147483647) % most;
  const one = (all) => all[chance(all.length)];
  const sign = () => one("abcxyz0123456789");
  /** A formula with the letters and digits that must be seen of it. */
  const made = (deep) => {
    if (deep > 4 || chance(3) === 0) { const char = sign(); return [char, char]; }
    const [a, b, c] = [made(deep + 1), made(deep + 1), made(deep + 1)];
    const shape = one(["\\frac{A}{B}", "\\sqrt{A}", "\\sqrt[A]{B}", "{A}^{B}", "{A}_{B}", "{A}_{B}^{C}", "A + B", "\\left(A\\right)", "\\sum_{A}^{B} C",
      "\\int_A^{B} C", "\\begin{pmatrix}A & B \\\\ C\\end{pmatrix}", "\\begin{cases}A & B\\\\ C\\end{cases}", "\\text{A}", "\\hat{A}", "\\overline{A B}",
      "\\binom{A}{B}", "\\underbrace{A}_{B}", "\\lim_{A} B", "A\\cdot B\\,C", "\\begin{aligned}A&=B\\\\&=C\\end{aligned}", "\\alpha_{A}", "A'", "\\boxed{A}", "\\overset{A}{B}"]);
    const used = { A: a, B: b, C: c };
    if (shape.startsWith("\\text")) { const word = sign() + sign(); return [`\\text{${word}}`, word]; }
    const kept = [...shape.replace(/\\(begin|end)\{\w+\}|\\[a-z]+/g, "")].filter((char) => char in used);
    return [shape.replace(/(?<!\\[a-z]*)[ABC]/g, (name) => ` ${used[name][0]} `), kept.map((name) => used[name][1]).join("")];
  };
  const letters = (text) => [...text].filter((char) => /[a-z0-9]/.test(char)).sort().join("");
  const wrong = [];
  for (let round = 0; round < rounds; round++) {
    const [tex, must] = made(0);
    const drawn = formula(tex, round % 2 === 0);
    if (!drawn) { wrong.push(`not drawn: ${tex}`); continue; }
    const seen = letters(drawn.textContent.replaceAll("lim", ""));
    if (seen !== letters(must)) wrong.push(`${tex} shows ${seen}, not ${letters(must)}`);
    if (drawn.querySelector("mrow, mi, mn, mo, mtext, mfrac, msqrt, mtable") === null) wrong.push(`empty: ${tex}`);
  }
  const pieces = ["\\frac", "{", "}", "^", "_", "&", "\\\\", "\\left", "\\right", "(", ".", "\\begin{matrix}", "\\end{matrix}", "\\begin{cases}", "\\sqrt", "[", "]", "a", "1", "$", "\\", "'",
    " ", "\\text", "\\sum", "\\limits", "\\not", "\\big", "\\mathbb", "\\middle", "\\xrightarrow", "\n", "\u{1d54f}", "é", "\\)", "\\(", "$$", "\\[", "\\]", "- [ ] ", "[^1]", "\n[^1]: n", "|", "5"];
  for (let round = 0; round < rounds; round++) {
    const words = Array.from({ length: 1 + chance(40) }, () => one(pieces)).join("");
    formula(words, false);
    const text = `Before ${words} after 77`;
    const [grown, whole] = [document.createElement("div"), document.createElement("div")];
    for (let end = 1; end <= text.length; end++) render(grown, text.slice(0, end), tools);
    render(whole, text, tools);
    await 0;
    await new Promise((done) => setTimeout(done));
    if (!grown.isEqualNode(whole)) wrong.push(`another end: ${text}`);
    if (!/^Before/.test(whole.textContent) || !whole.textContent.includes("77")) wrong.push(`lost: ${text}`);
  }
  return wrong.slice(0, 5);
}
