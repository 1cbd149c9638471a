/** The address of the WebSocket, and its end. */

export function socketUrl() {
  const url = new URL("../../ws", import.meta.url);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

/** Closes a socket. Browsers complain on the console when one is closed while it still opens. @param {any} socket */
export function shut(socket) {
  if (socket?.readyState === 0) socket.onopen = () => socket.close(1000);
  else socket?.close(1000);
}
