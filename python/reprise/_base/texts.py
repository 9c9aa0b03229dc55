# SPDX-License-Identifier: MIT
"""Names and messages of others on their way to terminals, pages and the library."""

import re

# As base/text.h has it: C0 but for ends of lines, C1, separators, what turns the direction of writing,
# noncharacters; and half surrogates, which stand for bytes that were no UTF-8.
_CONTROLS = re.compile("[\0-\t\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
                       "\ud800-\udfff\ufdd0-\ufdef" +
                       "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000)
                               for last in (0xfffe, 0xffff)) + "]")


def plain(text):
    """The text with '?' for what steers a terminal, or what no text may hold."""
    return _CONTROLS.sub("?", text)
