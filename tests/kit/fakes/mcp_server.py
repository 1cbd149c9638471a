"""A server of the Model Context Protocol that answers well, badly, late and not at all."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
server = MCPServer("testing")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
def shout(chars: int) -> str:
    """Returns a lot."""
    return "x" * chars


@server.tool()
async def hang() -> str:
    """Never returns."""
    await asyncio.sleep(3_600)
    return "late"


@server.tool()
def die() -> str:
    """Ends the whole server."""
    os._exit(7)


@server.tool()
def draw() -> CallToolResult:
    """A picture, words and a resource."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="Here it is."),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            EmbeddedResource(
                type="resource",
                resource=TextResourceContents(uri="file:///note.txt", mime_type="text/plain", text="A note."),
            ),
        ]
    )


@server.tool()
def write_line(path: str, line: str) -> str:
    """Appends a line to a file: doing it twice shows."""
    with Path(path).open("a") as file:
        file.write(f"{line}\n")
    return "written"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def note_line(path: str, line: str) -> str:
    """The same, by a server that says that a repeat does no harm."""
    return write_line(path, line)


@server.tool()
def process() -> int:
    """The number of this process."""
    return os.getpid()


@server.tool()
def environment() -> str:
    """The names of all variables."""
    return " ".join(sorted(os.environ))


@server.tool(name="grow more.tools")
async def grow(ctx: Context) -> str:
    """Offers one tool more from now on."""

    def grown() -> str:
        """Was not there before."""
        return "grown"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "ok"


if __name__ == "__main__":
    print("a word on standard error " * 50, file=sys.stderr, flush=True)
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
