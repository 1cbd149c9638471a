/** Push notifications of this browser while no page is open, for operators and visitors alike. */

/** Returns whether this browser supports push notifications on this page. */
export const canPush = () => isSecureContext && "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

/** Returns the push subscription of this browser; null without one. @param {string} scope @returns {Promise<PushSubscription | null>} */
export async function find(scope) {
  const registration = canPush() ? await navigator.serviceWorker.getRegistration(scope) : undefined;
  return await registration?.pushManager.getSubscription() ?? null;
}

/** Asks for the permission to notify and returns whether it was granted; call it only when a button was pressed. */
export const permit = async () => await Notification.requestPermission() === "granted";

/** Registers the service worker and subscribes this browser; a subscription under an older key is replaced. Rejects if the browser refuses. @param {string} root where the server's pages begin @param {string} scope @param {string} key of the server @returns {Promise<PushSubscription>} */
export async function subscribe(root, scope, key) {
  const registration = await navigator.serviceWorker.register(trustedScriptUrl(new URL("push.js", root).href), { scope });
  await waitUntilActive(registration);
  const options = { userVisibleOnly: true, applicationServerKey: key };
  try { return await registration.pushManager.subscribe(options); } catch (/** @type {any} */ error) {
    // the subscription was made with another key of the server
    const old = error.name === "InvalidStateError" && await registration.pushManager.getSubscription();
    if (!old) throw error;
    await old.unsubscribe();
    return registration.pushManager.subscribe(options);
  }
}

/** Returns the subscription in the form that the server expects. @param {PushSubscription} subscription */
export function pack(subscription) {
  const { endpoint, keys } = subscription.toJSON();
  return { endpoint, p256dh: keys?.p256dh, auth: keys?.auth };
}

/** @param {ServiceWorkerRegistration} registration */
async function waitUntilActive(registration) {
  const worker = registration.installing ?? registration.waiting;
  if (!registration.active && worker) await new Promise((done) => worker.addEventListener("statechange", () => { if (worker.state === "activated") done(null); }));
}

/** @type {any} */
let policy = null;
/** Returns a trusted address of a script: our pages allow no other address that is put together at run time. @param {string} url @returns {any} */
function trustedScriptUrl(url) {
  const { trustedTypes } = /** @type {any} */ (window);
  policy ??= trustedTypes?.createPolicy("evertalk", { createScriptURL: (/** @type {string} */ wanted) => wanted.endsWith("/push.js") ? wanted : "" });
  return policy ? policy.createScriptURL(url) : url;
}
