/** Packs the widget and the dashboard: `npm run build`. Browsers get what it writes, `web/static/dist`. */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const STATIC = fileURLToPath(new URL("static", import.meta.url));
const OUT = `${STATIC}/dist`;
const ENGLISH = fileURLToPath(new URL("../shared/locales/en/", import.meta.url));

/**
 * What a browser asks for in the usual order: the launcher, the open chat, what the full page adds; then, each when it
 * is needed, words and requests, answers, and all that is done beside talking. Each group is one file, named like its
 * first module, with all it needs that no earlier file has. What else stands behind `import()` is a file each.
 */
const FIRST = [
  ["widget/main.js"],
  ["widget/chat.js", "widget/panel.js"],
  ["widget/page.js"],
  ["widget/words.js"],
  ["widget/rare.js"],
  ["widget/md.js", "widget/acts.js", "widget/highlight.js"],
  ["widget/menu.js", "widget/sheet.js", "widget/keep.js", "widget/toast.js", "widget/shares.js", "widget/card.js", "widget/opinion.js", "widget/edit.js", "widget/cut.js", "widget/slash.js", "widget/side.js"],
];

/** The frame of the dashboard, which each of its pages needs, and the page that most people see first. */
const FRAME = "dashboard/main.js";
const FIRST_PAGE = "dashboard/overview.js";

// The configuration of the type checker changes nothing in what browsers get.
const plain = { absWorkingDir: STATIC, tsconfigRaw: "{}", minify: true, charset: "utf8", target: "es2022", logLevel: "warning", write: false };
const joined = { ...plain, bundle: true, format: "esm", metafile: true };

/** English is in the files that speak it; of the words of rare parts, those of the parts in the file. */
const english = (modules) => ({
  name: "english",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /\/locales\/en\// }, ({ path }) => ({ path: ENGLISH + posix.basename(path) }));
    onLoad({ filter: /chat_parts\.json$/ }, async ({ path }) => {
      const texts = await Promise.all(modules.map((name) => readFile(`${STATIC}/${name}`, "utf8")));
      const parts = Object.entries(JSON.parse(await readFile(path, "utf8")));
      const said = parts.filter(([part]) => texts.some((text) => text.includes(`english.${part}`)));
      return { contents: JSON.stringify(Object.fromEntries(said)), loader: "json" };
    });
  },
});

/** Lists the imports between modules that entries lead to; `later` are those of `import()`. */
async function readLinks(entryPoints, plugins = []) {
  const { inputs } = (await build({ ...joined, entryPoints, outdir: OUT, plugins })).metafile;
  return Object.entries(inputs).flatMap(([from, { imports }]) =>
    imports.filter(({ path }) => path.endsWith("js")).map(({ path, kind }) => ({ from, to: path, later: kind === "dynamic-import" })));
}

/** Collects a module and all that it imports at once. */
function reach(name, links, found = new Set()) {
  if (!found.has(name)) for (const { from, to, later } of links) if (from === name && !later) reach(to, links, found.add(name));
  return found.add(name);
}

/** Gives each module of the widget its file. */
function placeWidget(links) {
  const place = new Map();
  const put = (name, file) => { for (const one of reach(name, links)) if (!place.has(one)) place.set(one, file); };
  for (const group of FIRST) for (const name of group) put(name, group[0]);
  for (const { to, later } of links) if (later) put(to, to);
  return place;
}

/** Gives each module of the dashboard its file: the frame has what several pages share, a page has the rest of its own. */
function placeDashboard(links) {
  const place = new Map([...reach(FRAME, links, reach(FIRST_PAGE, links))].map((name) => [name, FRAME]));
  const parts = [...new Set(links.filter(({ later }) => later).map(({ to }) => to))].map((part) => [part, reach(part, links)]);
  for (const [part, modules] of parts) for (const name of modules) {
    const isShared = name !== part && parts.filter(([, others]) => others.has(name)).length > 1;
    if (!place.has(name)) place.set(name, isShared ? FRAME : part);
  }
  return place;
}

/** A sheet without the room that only people need; what is quoted stays. */
const dense = (sheet) => sheet
  .replace(/("[^"]*"|'[^']*')|\s*([{};,>])\s*|(:)\s+|\s+/g, (_, quoted, mark, colon) => quoted ?? mark ?? colon ?? " ")
  .replaceAll(";}", "}");

/** Leaves to other files what they hold. */
const apart = (file, place) => ({
  name: "apart",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^\.\.?\// }, ({ path, resolveDir }) => {
      const holder = place.get(posix.relative(STATIC, posix.join(resolveDir, path)));
      return holder === file || !holder ? undefined : { path: `./${posix.basename(holder)}`, external: true };
    });
    onLoad({ filter: /\.js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      return { contents: text.replace(/\/\* css \*\/ `[^`]*`/g, dense) };
    });
  },
});

/** The names that modules of other files take from one. */
async function taken(name, file, place, links) {
  const takers = links.filter(({ from, to }) => to === name && place.get(from) !== file);
  const texts = await Promise.all(takers.map(({ from }) => readFile(`${STATIC}/${from}`, "utf8")));
  const base = posix.basename(name);
  const found = texts.flatMap((text) => [...text.matchAll(/import \{([^}]+)\} from "([^"]+)"/g)])
    .filter(([, , path]) => posix.basename(path) === base);
  return new Set(found.flatMap(([, names]) => names.split(",").map((one) => one.trim().split(" as ")[0])));
}

async function write(name, options) {
  const { outputFiles } = await build({ ...options, outfile: `${OUT}/${name}` });
  await mkdir(posix.dirname(`${OUT}/${name}`), { recursive: true });
  await writeFile(`${OUT}/${name}`, outputFiles[0].contents);
}

/** Writes each file of one folder, with all that other files ask of it. */
async function pack(folder, place, links, texts = () => []) {
  const files = [...new Set(place.values())];
  for (const file of files) {
    const asked = links.filter(({ from, to, later }) => place.get(to) === file && (later || place.get(from) !== file));
    const given = new Set([file, ...asked.map(({ to }) => to)]);
    const contents = (await Promise.all([...given].map(async (name) => {
      const whole = folder !== "widget" || name === file || asked.some(({ to, later }) => to === name && later);
      return `export ${whole ? "*" : `{ ${[...await taken(name, file, place, links)].join(", ")} }`} from "./${name}";`;
    }))).join("\n");
    const within = [...place.keys()].filter((name) => place.get(name) === file);
    await write(`${folder}/${posix.basename(file)}`, { ...joined, stdin: { contents, resolveDir: STATIC }, plugins: [...texts(within), apart(file, place)] });
  }
  // Read together, they show that every name that one file takes is given by another.
  await build({ ...joined, entryPoints: files.map((file) => `dist/${folder}/${posix.basename(file)}`), outdir: `${OUT}/read` });
}

await rm(OUT, { recursive: true, force: true });
const ofWidget = await readLinks(FIRST.flat(), [english([])]);
await pack("widget", placeWidget(ofWidget), ofWidget, (within) => [english(within)]);
await write("widget.js", { ...plain, entryPoints: ["widget.js"] });
const ofDashboard = await readLinks([FRAME]);
await pack("dashboard", placeDashboard(ofDashboard), ofDashboard);
await write("dashboard/all.css", { ...plain, bundle: true, entryPoints: ["dashboard/all.css"] });
