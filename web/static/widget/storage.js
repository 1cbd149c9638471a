/** Keeps token, draft, unsent messages and small choices of one site in the browser, or in memory if storage is refused. */

/** @typedef {{cid: string, text: string, at: string, order: number, attachments?: any[], error?: string, advice?: string, talk?: string}} Unsent */

/** Returns a storage in memory, for browsers that refuse theirs. */
function memory() {
  const map = new Map();
  return {
    /** @param {string} key */ getItem: (key) => map.get(key) ?? null,
    /** @param {string} key @param {string} value */ setItem: (key, value) => void map.set(key, value),
    /** @param {string} key */ removeItem: (key) => void map.delete(key),
    keys: () => [...map.keys()],
  };
}

function browser() {
  const probe = "evertalk:probe";
  localStorage.setItem(probe, "1");
  localStorage.removeItem(probe);
  return {
    /** @param {string} key */ getItem: (key) => localStorage.getItem(key),
    /** @param {string} key @param {string} value */ setItem: (key, value) => localStorage.setItem(key, value),
    /** @param {string} key */ removeItem: (key) => localStorage.removeItem(key),
    keys: () => Object.keys(localStorage),
  };
}

/** Data of one site in this browser; names are stored with the site's prefix. */
export class Store {
  /** @param {string} site */
  constructor(site) {
    this.prefix = `evertalk:${site}:`;
    try { this.box = browser(); } catch { this.box = memory(); }
    this.talk = "";
    try { this.talk = sessionStorage.getItem(`${this.prefix}talk`) ?? ""; } catch { /* as above */ }
  }

  /** Returns a stored value; "" if there is none. @param {string} name */
  get(name) {
    return this.box.getItem(this.prefix + name) ?? "";
  }

  /** Stores a value; an empty one deletes the name. @param {string} name @param {string} value */
  put(name, value) {
    try {
      if (value) this.box.setItem(this.prefix + name, value);
      else this.box.removeItem(this.prefix + name);
    } catch { /* a full storage must not stop the conversation */ }
  }

  /** Sets the conversation of this tab, which survives a reload. @param {string} talk */
  enter(talk) {
    this.talk = talk;
    try { sessionStorage.setItem(`${this.prefix}talk`, talk); } catch { /* then it begins in the newest */ }
  }

  /** Stores an unsent message under a key for itself, so that two tabs never overwrite each other's. @param {Unsent} entry */
  keep(entry) {
    this.put(`out:${entry.cid}`, JSON.stringify({ ...entry, talk: this.talk }));
  }

  /** Deletes an unsent message. @param {string} cid */
  drop(cid) {
    this.put(`out:${cid}`, "");
  }

  /** Deletes a person's data; the look of site and chat stays. */
  leave() {
    for (const key of this.box.keys()) if (key.startsWith(this.prefix) && !/:(theme|site)$/.test(key)) this.box.removeItem(key);
  }

  /** Returns the messages of this conversation that the server has not confirmed, oldest first. @returns {Unsent[]} */
  unsent() {
    const out = [];
    for (const key of this.box.keys()) {
      if (!key.startsWith(`${this.prefix}out:`)) continue;
      try { out.push(JSON.parse(this.box.getItem(key) ?? "")); } catch { this.box.removeItem(key); }
    }
    return out.filter(({ talk }) => !talk || talk === this.talk).sort((a, b) => a.order - b.order);
  }
}

/** Returns a new client id; `randomUUID` is missing on pages without https. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return crypto.randomUUID?.() ?? [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
