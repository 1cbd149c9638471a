"""The tables of administration: agents, sites, bots, operators, keys and what is on record of them.

They are declared apart from the tables of conversations, whose statements are SQL: whoever works with these
by SQLModel imports no others.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
    text,
)
from sqlmodel import SQLModel

from shared.adapters.postgres.db.columns import (
    big,
    digest,
    field,
    identity,
    json,
    moment,
    one_of,
    public_id,
    small,
    text_list,
    words,
)


class AgentTable(SQLModel, table=True):
    __tablename__ = "agents"
    id: int = field(identity())
    name: str = field(words(unique=True))
    config: dict[str, Any] = field(json())
    version: int = field(big(default="1"))
    created_at: datetime = field(moment())
    updated_at: datetime = field(moment())


class AgentVersionTable(SQLModel, table=True):
    """What an agent's config was, the newest hundred of each; the last one is what holds."""

    __tablename__ = "agent_versions"
    agent_id: int = field(big(key=True, to="agents.id"))
    version: int = field(big(key=True))
    config: dict[str, Any] = field(json())
    changed_by: str | None = field(words(null=True))
    """Null where it was before versions were kept."""
    changed_at: datetime = field(moment())


class SiteTable(SQLModel, table=True):
    """Where a widget may live, and for whom."""

    __tablename__ = "sites"
    __table_args__ = (one_of("audience", "personal", "public", name="site_audience"),)
    name: str = field(words(key=True))
    audience: str = field(words(default="personal"))
    allowed_origins: list[str] = field(text_list(default="'{}'::text[]"))
    agent_id: int = field(big(to="agents.id"))
    created_at: datetime = field(moment())
    config: dict[str, Any] = field(json())
    """Checked by `shared/config/sites.py`."""
    version: int = field(big(default="1"))


class RefusedOriginTable(SQLModel, table=True):
    """A page that asked for a site's chat and may not have it; of each site the latest fifty."""

    __tablename__ = "refused_origins"
    __table_args__ = (ForeignKeyConstraint(["site"], ["sites.name"], name="refused_origin_site"),)
    site: str = field(words(key=True))
    origin: str = field(words(key=True))
    refused: int = field(big(default="1"))
    """How often."""
    last_at: datetime = field(moment())


class SiteSecretTable(SQLModel, table=True):
    """Signs who a site's people are; sealed, and two at once so that one can replace the other."""

    __tablename__ = "site_secrets"
    __table_args__ = (
        CheckConstraint("slot IN (1, 2)", name="site_has_two_secrets"),
        ForeignKeyConstraint(["site"], ["sites.name"], name="site_secret_site"),
    )
    site: str = field(words(key=True))
    slot: int = field(small(key=True))
    secret_id: str = field(words())
    key_id: str = field(words())
    sealed: bytes = field(digest())
    created_at: datetime = field(moment())


class StoredSettingTable(SQLModel, table=True):
    """What an operator has set while Evertalk runs; one that was taken away keeps its row and version."""

    __tablename__ = "stored_settings"
    __table_args__ = (
        CheckConstraint(
            "num_nonnulls(value, sealed) <= 1 AND (key_id IS NULL) = (sealed IS NULL)",
            name="stored_setting_is_plain_or_sealed",
        ),
        CheckConstraint("version > 0", name="stored_setting_counts"),
    )
    name: str = field(words(key=True))
    value: str | None = field(words(null=True))
    key_id: str | None = field(words(null=True))
    sealed: bytes | None = field(digest(null=True))
    version: int = field(big())
    changed_by: str = field(words())
    changed_at: datetime = field(moment())


class TelegramBotTable(SQLModel, table=True):
    """A bot of this deployment, and what ails it."""

    __tablename__ = "telegram_bots"
    __table_args__ = (
        one_of("audience", "personal", "public", name="telegram_bot_audience"),
        one_of("access", "pairing", "allowlist", "open", name="telegram_bot_access"),
        one_of("mode", "polling", "webhook", name="telegram_bot_mode"),
    )
    bot_id: int = field(big(key=True))
    username: str = field(words(default=""))
    agent_id: int = field(big(to="agents.id"))
    audience: str = field(words(default="personal"))
    access: str = field(words(default="pairing"))
    mode: str = field(words(default="polling"))
    problem: str = field(words(default=""))
    heard_at: datetime | None = field(moment(null=True))
    created_at: datetime = field(moment())


class OperatorTable(SQLModel, table=True):
    """Who runs the program; one of an identity provider has `issuer` and `subject` and no password."""

    __tablename__ = "operators"
    __table_args__ = (
        one_of("role", "viewer", "operator", "admin", name="operator_role"),
        CheckConstraint("(issuer IS NULL) = (subject IS NULL)", name="operator_of_a_provider"),
        CheckConstraint("issuer IS NULL OR password_hash IS NULL", name="operator_has_one_way_in"),
        UniqueConstraint("issuer", "subject", name="operator_identity"),
        CheckConstraint("char_length(display_name) <= 60", name="operator_display_name"),
    )
    id: int = field(identity())
    name: str = field(words(unique=True))
    role: str = field(words(default="admin"))
    password_hash: str | None = field(words(null=True))
    created_at: datetime = field(moment())
    disabled_at: datetime | None = field(moment(null=True))
    public_id: UUID = field(public_id())
    version: int = field(small(default="1"))
    issuer: str | None = field(words(null=True))
    subject: str | None = field(words(null=True))
    last_login_at: datetime | None = field(moment(null=True))
    display_name: str = field(words(default=""))
    """What people see; nobody but operators learns a login name."""
    checklist_hidden_at: datetime | None = field(moment(null=True))


class OperatorPictureTable(SQLModel, table=True):
    """What people see of an operator beside the name, found by a key that tells nothing but its content."""

    __tablename__ = "operator_pictures"
    __table_args__ = (
        CheckConstraint("key = left(encode(sha256(content), 'hex'), 32)", name="operator_picture_key"),
        CheckConstraint("octet_length(content) BETWEEN 1 AND 40960", name="operator_picture_size"),
    )
    operator_id: int = field(big(key=True, to="operators.id"))
    key: str = field(words())
    content: bytes = field(digest())


class OperatorSessionTable(SQLModel, table=True):
    """A browser in which an operator is logged in."""

    __tablename__ = "operator_sessions"
    __table_args__ = (one_of("how", "link", "password", "provider", name="operator_session_how"),)
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    created_at: datetime = field(moment())
    seen_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    public_id: UUID = field(public_id())
    how: str = field(words(default="link"))
    source: str = field(words(default=""))
    browser: str = field(words(default=""))


class LoginTriesTable(SQLModel, table=True):
    """Failed logins by the hash of an account, an address, or both; whoever asks too often waits longer."""

    __tablename__ = "login_tries"
    __table_args__ = (
        CheckConstraint("failures >= 0", name="login_tries_count"),
        CheckConstraint("octet_length(key) = 32", name="login_tries_are_of_hashes"),
    )
    key: bytes = field(digest(key=True))
    operator_id: int | None = field(big(null=True, to="operators.id"))
    failures: int = field(small(default="0"))
    last_at: datetime = field(moment())
    refused_until: datetime | None = field(moment(null=True))


class LoginPlaceTable(SQLModel, table=True):
    """Where an operator has logged in, by a keyed hash of both: there no stranger's tries count."""

    __tablename__ = "login_places"
    __table_args__ = (
        CheckConstraint("octet_length(key) = 32", name="login_places_are_hashes"),
        Index("login_places_of_operator", "operator_id", "at"),
    )
    key: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    at: datetime = field(moment())


class LoginLinkTable(SQLModel, table=True):
    """A link that logs an operator in once."""

    __tablename__ = "login_links"
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    used_at: datetime | None = field(moment(null=True))


class OperatorFactorTable(SQLModel, table=True):
    """An operator's authenticator app: its key, sealed, and hashes of the codes for when it is lost."""

    __tablename__ = "operator_factors"
    __table_args__ = (
        CheckConstraint("confirmed_at IS NOT NULL OR recovery = '{}'", name="factor_opens_when_confirmed"),
    )
    operator_id: int = field(big(key=True, to="operators.id"))
    key_id: str = field(words())
    sealed: bytes = field(digest())
    last_step: int = field(big(default="0"))
    recovery: list[bytes] = field(Column(ARRAY(LargeBinary), nullable=False, server_default=text("'{}'")))
    created_at: datetime = field(moment())
    confirmed_at: datetime | None = field(moment(null=True))


class OperatorStepTable(SQLModel, table=True):
    """Half a login: the password was right, the code is still to come."""

    __tablename__ = "operator_steps"
    __table_args__ = (
        one_of("how", "link", "password", name="operator_step_how"),
        Index("operator_steps_of_operator", "operator_id"),
    )
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    how: str = field(words())
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))


class ApiKeyTable(SQLModel, table=True):
    """What a program may do over REST, by a token that is kept as a hash only."""

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("cardinality(scopes) > 0", name="api_key_may_something"),
        CheckConstraint("octet_length(token_hash) = 32", name="api_key_is_kept_as_a_hash"),
        ForeignKeyConstraint(["site"], ["sites.name"], name="api_key_site", ondelete="CASCADE"),
        ForeignKeyConstraint(["agent_id"], ["agents.id"], name="api_key_agent", ondelete="CASCADE"),
        Index("api_key_of_a_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
    )
    id: int = field(identity())
    name: str = field(words())
    prefix: str = field(words())
    token_hash: bytes = field(digest(unique=True))
    scopes: list[str] = field(text_list())
    site: str | None = field(words(null=True))
    agent_id: int | None = field(big(null=True))
    created_at: datetime = field(moment())
    expires_at: datetime | None = field(moment(null=True))
    last_used_at: datetime | None = field(moment(null=True))
    revoked_at: datetime | None = field(moment(null=True))


class AuditRecordTable(SQLModel, table=True):
    """Who read or changed what; each row carries the hash of the one before. Ids, never text."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("audit_by_actor", "actor", "id"),
        Index("audit_by_action", "action", "id"),
        Index("audit_by_time", "at"),
    )
    id: int = field(identity())
    at: datetime = field(moment())
    actor: str = field(words())
    action: str = field(words())
    object: str = field(words(default=""))
    detail: dict[str, Any] = field(json())
    prev_hash: bytes = field(digest())
    hash: bytes = field(digest(unique=True))
