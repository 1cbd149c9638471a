"""Which lines of the five documents ask for something, and why all others do not; the mark `seed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest


def seed(document: str, *lines: int) -> pytest.MarkDecorator:
    """Marks a test, or a case of one, that shows what these lines of a document ask for."""
    return pytest.mark.seed(document, *lines)


def numbers(text: str) -> Iterator[int]:
    """Those of `3 7-9`: 3, 7, 8 and 9."""
    for word in text.split():
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    name: str
    lines: int
    """How many there are; the first has the number 1."""
    asks: str
    """Lines that state a requirement, a number or a fact that binds."""
    rest: Mapping[str, str]
    """All other lines, by the reason why they ask for nothing."""


DOCUMENTS: Mapping[str, Document] = {
    "000": Document(
        name="SPEC-008, context management and compaction",
        lines=367,
        asks=(
            "10 15-19 25 27 29 31 36-38 41-44 47-51 54-58 61-62 86 88-89 98 106 112-113 116 118-119 122 "
            "128 137-140 144-146 151-153 159 163-166 169 177 179-180 183 186 190 192 194-195 198 202 208 "
            "212-217 223 225-227 229-230 233 236-238 244 253-254 257 260-261 264-266 269 272 275 295-305 "
            "308-315 319-321 325-328 334-340 346-349 352-355 358-359 363-367"
        ),
        rest={
            "headings, rules and blank lines": (
                "1-2 7-9 11-13 20-22 24 26 28 30 32-35 39-40 45-46 52-53 59-60 63-67 75-77 83-85 91-95 97 "
                "99-100 102 105 109 114 117 120-121 123-125 127 129-130 133 143 148-149 154-156 158 "
                "160-161 168 170 181 184 187 196 200-201 203-205 207 209-210 219 228 231 234 240 242-243 "
                "245-247 249-250 255 258 262 267 270 273 276-280 286-287 289-293 306 316-318 322-324 "
                "329-332 341-344 350 356 360-362"
            ),
            "who wrote it, and when": "3-6",
            "words that only introduce what follows": "14 23 150 248 345 351 357",
            "files and branches of the other project": "68-74 78-82 96 126 157 206 294 307",
            "the order of its work": "281-285 288",
            "out of scope there, and not taken up here": "87 90",
            "frames and remarks of code whose statements are listed": (
                "101 103-104 107-108 110-111 115 131-132 134-136 141-142 147 162 167 171-176 178 182 185 "
                "188-189 191 193 197 199 211 218 220-222 224 232 235 239 241 251-252 256 259 263 268 271 "
                "274 333"
            ),
        },
    ),
    "001": Document(
        name="Pantheon F23, context budget and summaries",
        lines=147,
        asks=(
            "8 12-15 18-20 23-30 34-42 45 48-50 53-55 59-63 66-72 76 79-83 86-87 90-91 95-98 101-107 "
            "111-115 118-125 128-131 134-135 137-140 145-147"
        ),
        rest={
            "headings, rules and blank lines": (
                "1-2 6-7 9-10 16 21-22 31-32 43 46-47 51 56-57 64 73-74 77 84 88 92-93 99-100 108-109 116 "
                "126 132-133 141-142"
            ),
            "who wrote it, and when": "3-5",
            "words that only introduce what follows": "11 17 33 44 52 58 65 75 78 85 89 94 110 117 127 136",
            "the order of its work": "143-144",
        },
    ),
    "002": Document(
        name="research note on context compression",
        lines=418,
        asks=(
            "13-16 20-23 27-30 43-51 58-60 63-64 68-70 78 82-86 90-92 94 100 103-105 110-111 116 120-122 "
            "135-137 141-143 146-148 156-157 163-164 174-176 180-182 186-189 203-205 209-212 226-227 "
            "231-234 238-240 244-245 259-261 265-267 271-274 278 280 301-306 310-312 322-325 329-330 "
            "333-336 346-347 350 352-353 357-359 373-375 379-381 385-388 392-395 399-401 407-418"
        ),
        rest={
            "headings, rules and blank lines": (
                "1-2 4-8 10-12 17-19 24-26 31-35 37 39-42 52-55 57 61-62 65-66 71-73 75 77 79 87 89 93 "
                "95-97 99 101-102 107-108 112-114 118 123-124 132-133 138-139 144 149-152 154 158-159 "
                "167-170 172 177-179 183-185 190-192 194-198 200-202 206-208 213-215 217-221 223-225 "
                "228-230 235-237 241-243 246-248 250-254 256-258 262-264 268-270 275-277 281-283 285-289 "
                "291-293 295-296 298 308-309 313-315 317-318 320 327 331-332 337-339 341-342 344 348 "
                "355-356 360-362 364-368 370-372 376-378 382-384 389-391 396-398 402-406"
            ),
            "words that only introduce what follows": (
                "3 9 36 67 76 88 109 115 119 134 155 173 199 222 255 290 294 316 340 369"
            ),
            "where to find it in the other project": "38 56 74 98 153 171",
            "what an approach is worth, a judgement or a figure of others": "117 193 216 249 279 284 363",
            "head of a table": "80-81",
            "frames and remarks of code whose statements are listed": (
                "106 125-131 140 145 160-162 165-166 297 299-300 307 319 321 326 328 343 345 349 351 354"
            ),
        },
    ),
    "003": Document(
        name="Arawn, context management and commands",
        lines=354,
        asks=(
            "27 29 32-34 39-43 47-48 55 60 65 96 113-116 122 127 129 131 133 138 140-143 147-149 153 160 "
            "163 166 170 176 180-181 188-189 191-193 195-197 205-206 208-212 216 220-221 228-230 234-237 "
            "241-245 255 261-263 267-270 274 276 278 280 282 287-288 299-300 307-308 311-313 316-318 "
            "321-324 327-329 332-334 337-339 342-344 350-353"
        ),
        rest={
            "headings, rules and blank lines": (
                "1 11 15-16 21-26 28 30 35-37 44 49-52 56-57 61-62 66-71 92-95 97-98 110-111 117-121 "
                "123-124 135 139 145 151-152 154-155 158 161 164-165 167-169 171-172 178 183-187 190 194 "
                "198-202 207 214 218 222-226 232 239 247-252 254 258-259 264-266 271-273 275 277 279 281 "
                "283-286 289-290 293-294 297-298 301-305 309 314 319 325 330 335 340 345-348 354"
            ),
            "front matter of a file": "2-10 12-14 17-20",
            "words that only introduce what follows": "31 38 45 53-54 58-59 63-64 112 253 260",
            "left to another initiative, or rejected for one": "46 291-292 295-296",
            "names of tasks whose parts are listed": "306 310 315 320 326 331 336 341",
            "drawings of what is said in words": "72-91 99-109 256-257",
            "frames and remarks of code whose statements are listed": (
                "125-126 128 130 132 134 136-137 144 146 150 156-157 159 162 173-175 177 179 182 203-204 "
                "213 215 217 219 227 231 233 238 240 246 349"
            ),
        },
    ),
    "004": Document(
        name="OpenClaw's context, and what GoClaw adds",
        lines=365,
        asks=(
            "5 14-17 20-22 24-28 30 41-43 51-54 58 62-65 78-79 84 89-90 95-96 101 106 112 119 122-123 125 "
            "137 141 144-145 149-150 155-158 162-166 172-177 182 188 196-198 204 210 218-219 223 231-233 "
            "237-239 243-244 252-256 276 284-285 293-296 300-301 306 313-316 319 324-326 332 337 340-342 "
            "345-348 355-360 363-365"
        ),
        rest={
            "headings, rules and blank lines": (
                "1-4 6-11 32-39 46-49 57 59-61 67-73 113-118 120-121 124 126 133-136 138-139 142 147 "
                "152-153 159-161 167-170 179-181 183-187 189-190 194-195 199-203 205-206 214-216 221-222 "
                "224-230 234-236 240-242 245-249 257-261 263 269-275 277 279 290-291 298 303-305 307 309 "
                "321-322 327 329 335-336 338 343 349-353 361"
            ),
            "a figure of the other program": "18",
            "words that only introduce what follows": "13 154 278 292 297 299 308 323 328 339 344 354 362",
            "head of a table": "250-251",
            "where to find it in the other project": "262 264-268",
            "names of models, and a claim about their speed": "302",
            "drawings of what is said in words": (
                "12 19 23 29 31 75-77 80-83 85-88 91-94 97-100 102-105 107-111 310-312 317-318 320"
            ),
            "frames and remarks of code whose statements are listed": (
                "40 44-45 50 55-56 66 74 127-132 140 143 146 148 151 171 178 191-193 207-209 211-213 217 "
                "220 280-283 286-289 330-331 333-334"
            ),
        },
    ),
}
