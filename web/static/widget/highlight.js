/** Colours code by one linear regular expression: comments, strings, numbers and common keywords. */
import { h } from "../shared/h.js";

const WORDS = new Set((
  "abstract and as assert async await bool boolean break case catch char class const continue def default " +
  "del delete do done double echo elif else end enum esac except export extends false False fi final finally float fn " +
  "for from func function global if impl implements import in int interface is lambda let local long match mod module " +
  "mut namespace new nil None nonlocal not null object of or package pass private protected pub public raise " +
  "readonly require return self static string struct super switch template then this throw trait true True " +
  "try type typeof undefined union unless until use using val var virtual void when where while with yield " +
  "SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN LEFT ON GROUP BY ORDER LIMIT VALUES SET AND OR NOT NULL AS"
).split(" "));
const HASH = /^(py|python|sh|bash|shell|zsh|rb|ruby|ya?ml|toml|ini|r|perl|make|makefile|dockerfile|conf)$/i;
const DASHES = /^(sql|lua|haskell|hs)$/i;
const PLAIN = /^(te?xt|plain|markdown|md|log|output)$/i;
const LIMIT = 20_000;

/** @param {string} language */
function pattern(language) {
  const line = HASH.test(language) ? "#" : DASHES.test(language) ? "--" : "\\/\\/";
  const comment = `${line}[^\\n]*|\\/\\*[^]{0,4000}?\\*\\/|<!--[^]{0,4000}?-->`;
  const string = '"(?:[^"\\\\\\n]|\\\\.)*"|\'(?:[^\'\\\\\\n]|\\\\.)*\'|`(?:[^`\\\\]|\\\\.)*`';
  return new RegExp(`(${comment})|(${string})|(\\b\\d[\\w.]*\\b)|([A-Za-z_$][\\w$]*)`, "g");
}

/**
 * Returns code as text nodes and coloured spans. Code without a language and very long code stays plain.
 * @param {string} code @param {string} language @returns {Node}
 */
export function highlight(code, language) {
  const out = document.createDocumentFragment();
  if (!language || code.length > LIMIT || PLAIN.test(language)) return out.append(code), out;
  let from = 0;
  for (const found of code.matchAll(pattern(language))) {
    const kind = found[1] ? "c" : found[2] ? "s" : found[3] ? "n" : WORDS.has(found[4]) ? "k" : "";
    if (!kind) continue;
    out.append(code.slice(from, found.index), h("span", { class: `hl-${kind}` }, found[0]));
    from = found.index + found[0].length;
  }
  out.append(code.slice(from));
  return out;
}
