/** Sends frames that the server confirms. */

/** Sends a frame, and again after each reconnect until the server confirms it. @param {import("./chat.js").Chat} chat @param {{cid: string, [name: string]: any}} frame */
export function ensure(chat, frame) {
  const sent = chat.net.send(frame);
  if (sent) chat.asked.set(frame.cid, frame);
  return sent;
}
