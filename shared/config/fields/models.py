"""Settings of models and tools; an empty name means to choose what can be reached."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from shared.config.fields.declaration import ALL, Declaration, FormRow
from shared.config.fields.kinds import ExistingFile, FewModels, McpServers, ObjectList, SecretMap


class ModelSettings(BaseModel):
    """Settings of models and MCP tools; an empty name of a model means that one is chosen from the
    account's.
    """

    model: Annotated[
        str,
        Declaration(
            "Model provider",
            default="chosen",
            form=FormRow(
                "model", "Chat model", "Answers people; if empty, chosen from the account's models."
            ),
        ),
    ] = Field(
        default="", description="model that answers; by default Evertalk chooses one that the account offers"
    )
    summary_model: Annotated[
        str,
        Declaration(
            "Model provider",
            default="chosen",
            form=FormRow(
                "model", "Summary model", "Writes summaries; if empty, a small model of the account."
            ),
        ),
    ] = Field(
        default="",
        description=(
            "model that writes summaries; by default the small model of the account that answers, if "
            "it has one"
        ),
    )
    fallback_models: Annotated[
        FewModels,
        Declaration(
            "Model provider",
            form=FormRow(
                "model", "Fallback models", "Used in this order while the chat model fails; at most four."
            ),
        ),
    ] = Field(
        default=(),
        description=(
            "[models that answer](#models-file), in this order, while the one that should cannot; "
            "comma-separated, at most four"
        ),
    )
    models: Annotated[
        ObjectList, Declaration("Model provider", form=FormRow("model", "More models", kind="models"))
    ] = Field(
        default="",
        description=(
            "model entries as in a [models file](#models-file), in one line; the dashboard's page "
            "Settings writes them"
        ),
    )
    model_keys: Annotated[SecretMap | None, Declaration("Model provider", processes=ALL, by_purpose=True)] = (
        Field(default=None, description="API keys for them: a JSON object of server addresses and keys")
    )
    models_file: Annotated[ExistingFile | None, Declaration("Model provider", per_host=True)] = Field(
        default=None,
        description=(
            "JSON file with [model entries](#models-file): address, key, prices, context window, abilities"
        ),
    )
    mcp_file: Annotated[
        ExistingFile | None,
        Declaration(
            "Agents and tools", default="`mcp.json` in the data folder, if it is there", per_host=True
        ),
    ] = Field(
        default=None,
        description="JSON file with servers of the Model Context Protocol, see [tools](agents.md#tools)",
    )
    # The worker shows a model the tools that the model was shown before.
    mcp_servers: Annotated[
        McpServers | None,
        Declaration("Agents and tools", processes=ALL, form=FormRow("tools", "MCP servers")),
    ] = Field(
        default=None,
        description=(
            "more such servers, by their addresses, as JSON like that of the file; an agent's page on"
            " the dashboard sets it"
        ),
    )
    mcp_approval: Annotated[Literal["writing", "always", "never"], Declaration("Agents and tools")] = Field(
        default="writing",
        description=(
            "which MCP servers' changed tools wait for an administrator: `writing` (servers with a "
            "tool that is not annotated as read-only), `always` or `never`"
        ),
    )
