"""Files as people send and keep them, made by hand."""

from __future__ import annotations

import zlib


def slow_pdf(pages: int = 100, commands: int = 30_000) -> bytes:
    """Some kilobytes that unpack to as many commands on each page, of which each shows nothing."""
    stream = zlib.compress(b"BT /F1 12 Tf " + b"()Tj " * commands + b"ET", 9)
    content = pdf("x").replace(b"/Contents 5 0 R", b"/Contents 9 0 R")
    content = content.replace(b"[4 0 R] /Count 1", b"[%s] /Count %d" % (b" ".join([b"4 0 R"] * pages), pages))
    content += b"\n9 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(stream)
    return content + stream + b"\nendstream\nendobj\n"


def pdf(*pages: str) -> bytes:
    """Pages with these words, written by hand: a writer of text is more than pypdf is."""
    count = len(pages)
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, words in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({words}) Tj ET".encode()
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, table)
