"""The same turn through the house: real services, the web's own way out, a model that answers at once."""

from __future__ import annotations

from itertools import count
from typing import Any
from unittest import mock

from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.bootstrap.app import App, open_app
from shared.config.settings import Settings
from shared.core.session.turns import Inbound
from shared.core.values.messages import Text
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, Prices, Usage
from web.server.hub import Hub, SessionBroadcast

_cids = count(1)


class InstantModel:
    """Stands where the app's models stand: one delta, no waiting."""

    chat = summary = "bench"
    offline = False

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def trace(self, tracer: object) -> None:
        """Nothing is traced."""

    def cap_tokens(self, cap: object) -> None:
        """Its tokens cost nothing."""

    def start_loading(self) -> None:
        """Nothing is loaded."""

    async def wait_until_loaded(self) -> None:
        """It is all there."""

    def list_states(self) -> dict[str, Any]:
        return {}

    def list_narrowed_windows(self) -> tuple[()]:
        return ()

    def list_learned(self) -> tuple[()]:
        return ()

    def list_rejections(self) -> tuple[()]:
        return ()

    def fallbacks(self, _model: str) -> tuple[()]:
        return ()

    def take_answered(self) -> tuple[()]:
        return ()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        return {}

    async def load_card(self, model: str) -> ModelCard:
        return ModelCard(
            name=model,
            window=200_000,
            max_output=8_192,
            window_known=True,
            prices=Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75, dated="bench"),
            capabilities=frozenset({"tools", "cache"}),
        )

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        if on_text is not None:
            await on_text(1, self._answer)
        usage = Usage(input_tokens=1_000 + 20 * len(request.messages), output_tokens=20)
        return ModelReply(
            blocks=(Text(text=self._answer),), usage=usage, stop_reason="end_turn", model=request.model
        )

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        return None


async def app_with_instant_model(settings: Settings, *, answer: str) -> App:
    """The whole app as a web process builds it, but for its model."""
    with mock.patch(
        "shared.bootstrap.configured_parts.open_configured_models", return_value=InstantModel(answer)
    ):
        return await open_app(settings, role="web")


async def all_were_answered(app: App) -> None:
    """Raises AssertionError where a cap or a fault has made turns cheaper than they are."""
    rows = await app.pool.fetch("SELECT state, count(*) FROM turns GROUP BY 1")
    assert [row["state"] for row in rows] == ["answered"], rows


class WholeTurns:
    def __init__(self, app: App, hub: Hub) -> None:
        self._hub = hub
        self.conversation = app.sessions
        self._visitors = PostgresVisitors(app.pool)
        self._session = self._address = 0

    @property
    def session_id(self) -> int:
        return self._session

    async def begin(self) -> None:
        row = await self._visitors.create(generate_token(), site="default")
        assert row is not None
        self._session, self._address = row.session_id, row.address_id
        await self.conversation.check_leases()

    async def turn(self, text: str) -> None:
        """What `web.chat.socket_chat` does for a message, and `web.server.hub` after it."""
        cid = f"bench-{next(_cids)}"
        inbound = Inbound(
            session_id=self._session,
            address_id=self._address,
            text=text,
            dedupe_key=f"web:{cid}",
            cid=cid,
        )
        accepted = await self.conversation.accept_and_claim(inbound)
        self._hub.publish(self._session, accepted.event_seq, "msg", {"mid": accepted.mid, "text": text})
        await self.conversation.answer(self._session, SessionBroadcast(self._hub, self._session))
