/* Plays logs of random order with welcomes and drafts that are ahead of them; how many ended, or ever stood, in a wrong order. */
async (total) => {
  const { Conversation } = await import("/static/widget/state.js");
  let bad = 0;
  let seed = 1;
  const chance = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const some = (most) => Math.floor(chance() * most);
  const drafted = (turn) => [{ t: "run", turn, state: "started" }, { t: "delta", turn, attempt: 1, off: 0, text: "d" }];
  const count = (events, role) => events.filter((one) => one.role === role).length;

  /** The questions of each turn, then its answer; the next question may come before that. */
  function log() {
    const events = [];
    const turns = 2 + some(5);
    let asked = 0;
    let answered = 0;
    const add = (event) => events.push({ event_seq: events.length + 1, mid: `m${events.length + 1}`, ...event });
    while (answered < turns) {
      if (asked < turns && (asked === answered || chance() < 0.4)) add({ t: "msg", role: "person", turn: ++asked, text: "q" });
      else add({ t: "msg", role: "assistant", turn: ++answered, text: "a" });
      if (chance() < 0.1) add({ t: "command.result", command: "help", success: true, result: "x", cid: `c${events.length}` });
    }
    return events;
  }

  /** What runs, read a moment after the head. */
  function state(events, head) {
    const later = events.slice(0, head + some(3));
    const turn = count(later, "assistant") + 1;
    return count(later, "person") >= turn ? { run: { turn, state: "started", text: "d" }, queued: [] } : { queued: [] };
  }

  function play() {
    const events = log();
    const chat = new Conversation({ changed() {}, said() {}, gap() {} });
    let upside = 0;
    const take = (frame) => {
      chat.take(frame);
      chat.items.forEach((answer, at) => {
        if (answer.role === "assistant" && chat.items.slice(at).some((one) => one.role === "person" && one.turn === answer.turn)) upside++;
      });
    };
    for (let at = 0; at < events.length;) {
      const r = chance();
      if (at === 0 || r < 0.2) {
        const resumed = at > 0 && chance() < 0.6;
        const head = Math.min(events.length, Math.max(1, at + some(3)));
        take({ t: "welcome", session: "s", log_epoch: 1, head, resumed, audience: "personal", events: events.slice(resumed ? at : 0, head), state: state(events, head) });
        at = head;
      } else if (r < 0.45) {
        const near = events.slice(0, at + 1);
        const turn = count(near, "assistant") + 1;
        if (count(near, "person") >= turn) drafted(turn).forEach(take);
      } else take(events[at++]);
    }
    const stored = events.filter((one) => one.t === "msg").map((one) => one.mid);
    const shown = chat.items.filter((one) => one.kind === "msg").map((one) => one.mid);
    return upside === 0 && shown.join() === stored.join();
  }

  for (let n = 0; n < total; n++) if (!play()) bad++;
  return bad;
}
