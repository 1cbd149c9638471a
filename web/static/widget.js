/* Loads the Evertalk chat: <script src="https://…/widget.js" data-site="…" async></script> */
(() => {
  "use strict";
  const early = window.Evertalk;
  if (early && early.loaded) return;
  const script = document.currentScript;
  const api = function (...call) {
    return api.run ? api.run(...call) : void api.q.push(call);
  };
  api.q = ((early && early.q) || []).map((call) => [...call]);
  api.loaded = true;
  window.Evertalk = api;
  const data = { ...script.dataset };
  // The script is served at the root or beside the modules; both cases lead to the same folder.
  const main = new URL(/\/static\/[^/]*$/.test(script.src.split("?")[0]) ? "widget/main.js" : "static/widget/main.js", script.src);
  const begin = () =>
    import(main.href)
      .then(({ start }) => start({ ...data, site: data.site || "default", open: "open" in data && data.open !== "false" }, api))
      .catch((error) => {
        api.loaded = false;
        document.dispatchEvent(new CustomEvent("evertalk:error", { detail: { code: "load_failed", message: String(error) } }));
      });
  if (document.body) begin();
  else addEventListener("DOMContentLoaded", begin, { once: true });
})();
