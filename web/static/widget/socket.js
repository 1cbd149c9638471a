/** The address of the WebSocket, and how to close it. */

/** Returns the address of the server's WebSocket, which lies next to this script's folder. */
export function socketUrl() {
  const url = new URL("../../ws", import.meta.url);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

/** Closes a socket. One that is still opening is closed later, since browsers would report an error on the console. @param {any} socket */
export function shut(socket) {
  if (socket?.readyState === 0) socket.onopen = () => socket.close(1000);
  else socket?.close(1000);
}
