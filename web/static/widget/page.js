/** The full page at /chat: the chat without a launcher; a cookie identifies its visitor. */
import { Widget } from "./main.js";

const query = new URLSearchParams(location.search);
const base = new CSSStyleSheet();
base.replaceSync("html{color-scheme:light dark}html[data-theme=light]{color-scheme:light}html[data-theme=dark]{color-scheme:dark}body{margin:0;background:light-dark(#fff,#131318)}");
document.adoptedStyleSheets = [base];
const theme = query.get("theme") ?? "auto";
document.documentElement.dataset.theme = theme;
const widget = new Widget({
  site: query.get("site") ?? document.documentElement.dataset.site ?? "default",
  title: document.documentElement.dataset.title ?? "", theme, locale: query.get("locale") ?? navigator.language, page: true,
});
await widget.mount();
document.querySelector("noscript")?.remove();
const { chat } = widget;
if (chat?.store.get("push")) import("./notify.js").then((one) => one.renew(chat)).catch(() => {});
document.documentElement.lang = widget.root.lang;
