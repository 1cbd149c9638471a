/* A timeline of its own in an open page, fed with so many messages from the end to the beginning. */
async (count) => {
    const [{ Conversation }, { timeline }, { dress }, { sheet }] = await Promise.all(
        ["state", "log", "panel", "styles"].map((name) => import(`/static/widget/${name}.js`)));
    const host = document.createElement("div");
    document.body.append(host);
    const root = host.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet()];
    dress(root);
    const frame = document.createElement("div");
    frame.className = "root";
    const panel = document.createElement("div");
    panel.className = "panel";
    const middle = document.createElement("div");
    middle.className = "middle";
    root.append(frame);
    frame.append(panel);
    panel.append(middle);
    let view = null;
    const chat = new Conversation({ changed() { view?.update(); }, said() {}, gap() {} });
    const event = (n) => ({ t: "msg", event_seq: n, mid: `m${n}`, role: n % 2 ? "person" : "assistant", turn: Math.ceil(n / 2),
        text: `Message ${n}\n\n${"and more of it ".repeat(n % 7)}`, at: new Date(Date.UTC(2026, 0, 1) + n * 600_000).toISOString() });
    const page = async (query) => {
        const before = Number(new URLSearchParams(query).get("before"));
        const first = Math.max(1, before - 1000);
        const events = [];
        for (let n = first; n < before; n++) events.push(event(n));
        return { events, before: first > 1 ? first : null, after: before - 1 };
    };
    view = timeline({ chat, copy() {}, retry() {}, discard() {}, acts: async () => null, originals: async () => ({}), undo() {},
        store: { get: () => "", put() {} }, attached() {}, page, say() {} });
    middle.append(view.node);
    const events = [];
    for (let n = count - 49; n <= count; n++) events.push(event(n));
    chat.take({ t: "welcome", session: "s", log_epoch: 1, head: count, resumed: false, events, state: {}, audience: "personal" });
    const slept = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    for (let n = 0; n < 20; n++) await slept();
    let most = 0, worst = 0, seen = 0;
    const times = [];
    const began = performance.now();
    while (!view.node.querySelector(".start")) {
        const from = performance.now();
        view.node.scrollTop = 0;
        view.node.dispatchEvent(new Event("scroll"));
        times.push(performance.now() - from);
        await slept();
        most = Math.max(most, view.node.querySelectorAll("article").length);
        if (performance.now() - began > 120_000) break;
    }
    const frames = [];
    for (let n = 0; n < 60; n++) {
        const from = performance.now();
        view.node.scrollTop += 400;
        view.node.dispatchEvent(new Event("scroll"));
        view.node.getBoundingClientRect();
        frames.push(performance.now() - from);
        await slept();
        most = Math.max(most, view.node.querySelectorAll("article").length);
    }
    const from = performance.now();
    chat.take({ ...event(count + 1), event_seq: count + 1 });
    const live = performance.now() - from;
    frames.sort((a, b) => a - b);
    return { items: chat.items.length, most, typical: frames[30], worst: frames[59], live, seconds: (performance.now() - began) / 1000 };
}
