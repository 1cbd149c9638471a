"""The operations of the pages that keep the house: memory, people, pairing, agents, sites, settings."""

from __future__ import annotations

from shared.adapters.postgres.dashboard.memory_queries import AUTHORITIES, STATES
from shared.adapters.postgres.dashboard.people_queries import KINDS
from shared.core.context.memory import NOTE_KINDS
from web.api.spec.operation import (
    CURSOR,
    LIMIT,
    Operation,
    Parameter,
    choice,
    done,
    in_path,
    seen,
    some_words,
)
from web.api.spec.shapes import ID, words

_NOTE = in_path("id", "the id of a note", ID)
_PERSON = in_path("id", "the public id of a person", ID)
_SEEN = Parameter(
    name="If-Match", told="the `etag` or version that the edit began with", schema=words(80, least=1),
    place="header",
)  # fmt: skip


_MEMORY = (
    seen(
        "/notes", "listAllNotes", "What is remembered, of anybody; the newest first.", "FoundNotes",
        some_words("q", "a part of its words or id"),
        Parameter(name="person", told="whose", schema=ID),
        choice("kind", "of note", *NOTE_KINDS),
        choice("state", "as it stands", *STATES),
        choice("authority", "who vouches for it", *AUTHORITIES),
        CURSOR, LIMIT,
    ),
    done(
        "POST", "/notes", "addNote", "Add a note about a person, marked as an operator's.", "AddedNote",
        body="NoteWish", refusals=(404, 409, 410),
        more="Without `agent` it goes to the one that they spoke to last. Secrets are taken out.",
    ),
    done(
        "PATCH", "/notes/{id}", "correctNote", "Correct a note; the newer one has an id of its own.",
        "CorrectedNote", _NOTE, _SEEN, body="NoteCorrection", refusals=(404, 409, 410, 428),
        more="409 carries both versions when somebody else was faster.",
    ),
    done(
        "DELETE", "/notes/{id}", "putAnyNoteAway", "Put a note out of sight; for a while it can come back.",
        "CorrectedNote", _NOTE, refusals=(404, 409, 410),
    ),
    done(
        "POST", "/notes/{id}/restore", "restoreAnyNote", "Bring a note back that an operator put away.",
        "CorrectedNote", _NOTE, refusals=(404, 409, 410),
        more="What its person had forgotten, only they can bring back.",
    ),
)  # fmt: skip

_PEOPLE = (
    seen(
        "/search", "searchConversations", "What people said, by words; the last active conversation first.",
        "FoundConversations",
        some_words("q", "the words"), Parameter(name="session", told="only this one", schema=ID), CURSOR,
        more="Each conversation comes with its newest messages that say the words; with `session`, with a "
        "page of them. The search is audited as reading.", refusals=(404,),
    ),
    seen(
        "/people", "listPeople", "Who there is; the last ones seen first.", "People",
        some_words("q", "a part of a name, a place or an id"),
        some_words("channel", "where they came from", 50),
        choice("kind", "a person or a group", *KINDS),
        CURSOR, LIMIT,
    ),
    seen("/people/{id}", "person", "One person: places, conversations, figures.", "Person", _PERSON),
    seen(
        "/people/{id}/export", "exportPerson", "Everything that is kept of a person, as a file.", "",
        _PERSON, choice("format", "JSON without it", "md", "json"), role="operator", media="*/*",
    ),
    seen(
        "/people/{id}/erasure", "previewErasure", "What forgetting would take, and how far it is.", "Erasure",
        _PERSON,
    ),
    done(
        "POST", "/people/{id}/erasure", "erasePerson", "Forget a person for good.", "ErasureBegun", _PERSON,
        role="admin", body="ErasureWish", refusals=(404, 409),
        more="`confirm` repeats the person's name or id. A worker goes on with what takes long.",
    ),
    done(
        "POST", "/people/{id}/hold", "holdPerson", "Let nothing of a person be deleted, or again.", "Held",
        _PERSON, role="admin", body="HoldWish", refusals=(404,),
    ),
)  # fmt: skip

_AGENT = in_path("name", "of an agent", words(40, least=1))
_SITE = in_path("name", "of a site", words(64, least=1))

_SET_UP = (
    seen("/pairing", "listPairing", "Who asked to write to the bots, may, or may not.", "Pairing"),
    done(
        "POST", "/pairing", "decidePairing", "Let somebody in, or keep them out.", "Paired",
        body="PairingMove",
        more="`approve` and `refuse` take the `code` of a request; `block` and `allow` the numbers "
        "of `bot` and `chat`.",
    ),
    seen("/agents", "listAgents", "Who answers, and where.", "Agents"),
    done(
        "POST", "/agents", "makeAgent", "Make an agent, with the deployment's settings.", "Made",
        role="admin", body="NewName", status=201, refusals=(409,),
    ),
    seen("/agents/{name}", "agent", "An agent, and the numbers it comes to.", "Agent", _AGENT),
    done(
        "PUT", "/agents/{name}", "changeAgent", "Change an agent; it holds from each next message on.",
        "Agent", _AGENT, _SEEN, role="admin", body="AgentSettings", refusals=(404, 409, 413, 422, 428, 503),
    ),
    done(
        "POST", "/agents/{name}/check", "checkAgent", "What would be wrong with a config, and its numbers.",
        "AgentJudged", _AGENT, role="admin", body="AgentSettings", refusals=(404, 413, 503),
    ),
    seen("/sites", "listSites", "Where the widget lives.", "Sites"),
    done(
        "POST", "/sites", "makeSite", "Make a site, which no page may use until it has origins.", "Made",
        role="admin", body="NewName", status=201, refusals=(409,),
    ),
    seen("/sites/{name}/settings", "site", "A site: settings, secrets' ids, snippet.", "SiteWhole", _SITE),
    done(
        "PUT", "/sites/{name}/settings", "changeSite", "Change a site; it holds within ten seconds.",
        "SiteWhole", _SITE, _SEEN, role="admin", body="SiteSettings", refusals=(404, 409, 413, 422, 428),
    ),
    done(
        "POST", "/sites/{name}/check", "checkSite", "What would be wrong with settings, and how they look.",
        "SiteJudged", _SITE, role="viewer", body="SiteSettings", refusals=(404, 413),
    ),
    done(
        "POST", "/sites/{name}/origins", "allowOrigin", "Let the pages of an origin use a site's chat.",
        "SiteWhole", _SITE, role="admin", body="SiteOrigin", refusals=(422,),
    ),
    done(
        "POST", "/sites/{name}/secrets", "makeSiteSecret", "A secret that signs people in, shown this once.",
        "SiteSecret", _SITE, role="admin", refusals=(404, 409, 503),
    ),
    done(
        "DELETE", "/sites/{name}/secrets/{id}", "revokeSiteSecret",
        "Revoke a secret; whoever it signed in has to come again.", "Success", _SITE,
        in_path("id", "of the secret", words(40, least=1)), role="admin", refusals=(404,),
    ),
    seen(
        "/settings", "listSettings", "Every setting, its value, and where that came from; never a secret.",
        "Settings", role="operator",
    ),
)  # fmt: skip

FOR_HOUSE: tuple[Operation, ...] = (*_MEMORY, *_PEOPLE, *_SET_UP)
