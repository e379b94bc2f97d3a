"""A drawing board of a few colours that writes PNG, with one font of 5 by 7 dots: enough for a social card, no library.

The font is the dot matrix of common character displays; what it lacks (other scripts) is drawn as an empty frame.
"""

import struct
import unicodedata
import zlib

_FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a1223130864623649562050000807030000"
    "1c2241000041221c00"
    "2a1c7f1c2a08083e080800807030000808080808000060600020100804023e5149453e00427f4000724949494621414"
    "94d331814127f1027454545393c4a49493141211109073649494936464949291e00001400000040340000000814224114141414140041221408"
    "02015909063e415d594e7c1211127c7f494949363e414141227f4141413e7f494949417f090909013e414151737f0808087f00417f4100"
    "2040413f017f081422417f404040407f021c027f7f0408107f3e4141413e7f090909063e4151215e7f09192946264949493203017f0103"
    "3f4040403f1f2040201f3f4038403f6314081463030478040361594"
    "94d43007f4141410204081020004141417f04020102044040404040"
    "00030708002054547840"
    "7f2844443838444444283844442"
    "87f385454541800087e090218a4a49c787f0804047800447d4000"
    "2040403d007f1028440000417f40007c047804787c080404783844444438fc1824241818242418fc7c080404084854545424"
    "04043f44243c4040207c1c2040201c3c4030403c44281028444c9090907c4464544c44000836410000007700000041360800"
    "0201020402"
)
_FRAME = bytes((0x7F, 0x41, 0x41, 0x41, 0x7F))
_PLAIN = str.maketrans({"·": "-", "–": "-", "—": "-", "×": "x", "“": '"', "”": '"', "’": "'", "…": "~", "↑": "^"})
ADVANCE = 6


class Canvas:
    """Pixels as indices of a palette of (red, green, blue)."""

    def __init__(self, width: int, height: int, palette: list[tuple[int, int, int]]) -> None:
        self.width, self.height, self.palette = width, height, palette
        self.rows = [bytearray(width) for _ in range(height)]

    def box(self, x: float, y: float, width: float, height: float, colour: int) -> None:
        """Fill a rectangle, cut at the edges."""
        left, right = max(0, round(x)), min(self.width, round(x + width))
        if right <= left:
            return
        span = bytes((colour,)) * (right - left)
        for row in self.rows[max(0, round(y)) : max(0, round(y + height))]:
            row[left:right] = span

    def write(self, x: float, y: float, text: str, size: int, colour: int, *, is_bold: bool = False) -> float:
        """Write a text with its top left corner at a place, a dot being `size` pixels; return where it ends."""
        for character in simplify(text):
            for column, bits in enumerate(_glyph(character)):
                for line in range(8):
                    if bits >> line & 1:
                        self.box(x + column * size, y + line * size, size * (1.45 if is_bold else 1), size, colour)
            x += ADVANCE * size
        return x

    def png(self) -> bytes:
        """Return the picture as PNG."""
        data = b"".join(b"\0" + bytes(row) for row in self.rows)
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        colours = b"".join(bytes(entry) for entry in self.palette)
        parts = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(data, 6)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, part) for kind, part in parts)


def simplify(text: str) -> str:
    """Return a text in the letters that the font has, as far as they can be had by leaving accents out."""
    flat = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(character for character in flat if not unicodedata.combining(character))


def fit(text: str, width: float, size: int) -> str:
    """Return as much of a text as fits a width, with a sign where it was cut."""
    room = int(width // (ADVANCE * size))
    plain = simplify(text)
    return plain if len(plain) <= room else f"{plain[: room - 2].rstrip()}.."


def _glyph(character: str) -> bytes:
    code = ord(character) - 32
    return _FONT[code * 5 : code * 5 + 5] if 0 <= code < 95 else _FRAME


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
