"""Language tags, each with the folder of texts that browser and server choose for it."""

from __future__ import annotations

FOLDERS = ("de", "en", "he", "id", "pt-br", "zh-hans", "zh-hant")
TAGS = {
    "de": "de", "de-AT": "de", "DE_ch": "de", "den": "en", "el-GR": "en", "en-GB": "en", "pt": "pt-br",
    "pt-PT": "pt-br", "pt-BR": "pt-br", "zh": "zh-hans", "zh-CN": "zh-hans", "zh-Hans-SG": "zh-hans",
    "zh-TW": "zh-hant", "zh-HK": "zh-hant", "zh-Hant": "zh-hant", "zh-Hant-MO": "zh-hant", "iw": "he",
    "in-ID": "id", "": "en", "💬": "en", "x": "en",
}  # fmt: skip
