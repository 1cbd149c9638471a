/** A service worker that shows notifications while no page is visible, and opens their page on click. It caches and fetches nothing. */

/** @typedef {{title: string, body: string, tag: string, url: string}} Told */
const worker = /** @type {any} */ (self);
const pages = async () => (await worker.clients.matchAll({ type: "window", includeUncontrolled: true })).filter((/** @type {any} */ one) => one.url.startsWith(worker.registration.scope));

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener("push", (/** @type {any} */ event) => event.waitUntil(showNotification(event.data.json())));
worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(openPage(new URL(event.notification.data, worker.location.href)));
});

/** Shows a notification unless one of our pages is focused. @param {Told} told */
async function showNotification({ title, body, tag, url }) {
  if (tag !== "test" && (await pages()).some((/** @type {any} */ one) => one.focused)) return;
  await worker.registration.showNotification(title, { body, tag, renotify: true, icon: "static/icon.svg", data: url });
}

/** Focuses a tab that shows the address, or one of the same page, or opens a new one. @param {URL} url */
async function openPage(url) {
  const tabs = (await pages()).filter((/** @type {any} */ one) => isSame(new URL(one.url), url, "pathname"));
  const there = tabs.find((/** @type {any} */ one) => ["site", "at"].every((name) => isSame(new URL(one.url), url, name)));
  if (there) return there.focus();
  if (!tabs.length || !url.searchParams.has("at")) return worker.clients.openWindow(url.href);
  const tab = await tabs[0].focus();
  // A tab that this worker does not control yet cannot be navigated.
  await tab.navigate(url.href).catch(() => worker.clients.openWindow(url.href));
}

/** @param {URL} one @param {URL} other @param {string} name of a part of the address, or of its query */
function isSame(one, other, name) {
  if (name === "pathname") return one.pathname === other.pathname;
  const [mine, theirs] = [one, other].map((url) => url.searchParams.get(name) ?? (name === "site" ? "default" : ""));
  return mine === theirs;
}
