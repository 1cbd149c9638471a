"""Settings of recall, and of the agents' folders."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

from shared.config.fields.declaration import ALL, Declaration, FormRow
from shared.config.fields.kinds import AbsolutePath, WebAddress


class RecallSettings(BaseModel):
    """Settings of search by meaning, of reranking, and of the watch of agents' folders."""

    meaning: Annotated[
        bool,
        Declaration(
            "Model provider",
            form=FormRow(
                "recall",
                "Search by meaning (90 MB of memory)",
                "Also finds other wordings and languages, with a model on this machine.",
            ),
        ),
    ] = Field(
        default=True,
        description=(
            "whether [recall](memory.md#meaning) also finds what was meant, in a process of its own, "
            "after `./evertalk install meaning`; `EVERTALK_EMBEDDINGS_URL` does not need it"
        ),
    )
    meaning_socket: Annotated[AbsolutePath | None, Declaration("Model provider")] = Field(
        default=None,
        description=(
            "socket of the encoder's process where it is not a child of `up`, such as "
            "`/run/meaning/meaning.sock`; without it, `meaning.sock` in the data folder"
        ),
    )

    # Who orders what recall finds: any server with /rerank.
    rerank_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider", form=FormRow("recall", "{provider}: address", provider="Recall", rare=True)
        ),
    ] = Field(
        default=None,
        description=(
            "base URL of a server that orders what [recall](memory.md#re-ranking) finds, such as "
            "`http://127.0.0.1:8012/v1`: any with `/rerank`; without it, recall keeps its own order"
        ),
    )
    rerank_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="rerank_url",
            processes=ALL,
            form=FormRow("recall", "{provider}: key", provider="Recall", rare=True),
        ),
    ] = Field(default=None, description="API key of that server")
    rerank_model: Annotated[
        str, Declaration("Model provider", form=FormRow("recall", "Reranking model", rare=True))
    ] = Field(default="", description="model that orders, for a server with several")

    # Who says what texts mean in place of the extra: any server with /embeddings.
    embeddings_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider", form=FormRow("recall", "{provider}: address", provider="Embeddings", rare=True)
        ),
    ] = Field(
        default=None,
        description=(
            "base URL of a server that says what texts [mean](memory.md#embeddings), in place of the "
            "extra `meaning`, such as `http://127.0.0.1:8013/v1`: any with `/embeddings`"
        ),
    )
    embeddings_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="embeddings_url",
            processes=ALL,
            form=FormRow("recall", "{provider}: key", provider="Embeddings", rare=True),
        ),
    ] = Field(default=None, description="API key of that server")
    embeddings_model: Annotated[
        str, Declaration("Model provider", form=FormRow("recall", "Embedding model", rare=True))
    ] = Field(
        default="",
        description=(
            "model that embeds, such as `text-embedding-3-small`; a server with a single model needs none"
        ),
    )

    # Agents' folders: how often their files are looked at beside the watcher.
    workspace_poll_seconds: Annotated[int, Declaration("Agents and tools")] = Field(
        default=60,
        ge=0,
        le=86_400,
        description=(
            "seconds between checks of the agents' files, in addition to the file watcher; 0 turns "
            "the checks off"
        ),
    )
