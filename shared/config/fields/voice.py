"""Settings of servers for pictures, transcription and spoken answers; without an address they are off."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import AbsolutePath, Dollars, WebAddress


class VoiceSettings(BaseModel):
    """Settings of servers for pictures, transcription and spoken answers; without an address each is off."""

    picture_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider",
            form=FormRow(
                "pictures",
                "{provider}: address",
                "Such as https://api.openai.com/v1; empty switches it off.",
                provider="Pictures",
            ),
        ),
    ] = Field(
        default=None,
        description=(
            "base URL of a server that makes pictures, such as `https://api.openai.com/v1`: any with "
            "`/images/generations`; with it, the model has the tool `make_picture`"
        ),
    )
    picture_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="picture_url",
            processes=("web", "bot"),
            form=FormRow("pictures", "{provider}: key", "Sent to this address only.", provider="Pictures"),
        ),
    ] = Field(default=None, description="API key of that server")
    picture_model: Annotated[str, Declaration("Model provider", form=FormRow("pictures", "Image model"))] = (
        Field(default="gpt-image-2", description="model that makes pictures")
    )
    picture_usd: Annotated[
        Dollars | None,
        Declaration("Model provider", form=FormRow("pictures", "Price per picture", rare=True)),
    ] = Field(
        default=None,
        description=(
            "price of a picture; without it, the ledger shows pictures at no known price, and no "
            "spending cap holds them"
        ),
    )
    transcribe_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider",
            form=FormRow(
                "voice",
                "{provider}: address",
                "Such as https://api.openai.com/v1; empty switches it off.",
                provider="Voice",
            ),
        ),
    ] = Field(
        default=None,
        description=(
            "base URL of a server that turns speech into words, such as `https://api.openai.com/v1`: "
            "any with `/audio/transcriptions`; without it, voice messages are declined"
        ),
    )
    transcribe_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="transcribe_url",
            processes=("web", "bot"),
            form=FormRow("voice", "{provider}: key", "Sent to this address only.", provider="Voice"),
        ),
    ] = Field(default=None, description="API key of that server")
    transcribe_model: Annotated[
        str, Declaration("Model provider", form=FormRow("voice", "Transcription model"))
    ] = Field(default="whisper-1", description="model that transcribes")
    transcribe_per_minute_usd: Annotated[
        Dollars | None, Declaration("Model provider", form=FormRow("voice", "Price per minute", rare=True))
    ] = Field(
        default=None,
        description=(
            "price of a minute of speech; without it, the ledger shows what was heard at no known "
            "price, and no spending cap holds it"
        ),
    )
    transcribe_most_minutes: Annotated[
        float,
        Declaration("Model provider", form=FormRow("voice", "Maximum recording length (minutes)", rare=True)),
    ] = Field(default=10, gt=0, le=240, description="longest recording that is transcribed")
    transcribe_most_mb: Annotated[
        float, Declaration("Model provider", form=FormRow("voice", "Maximum recording size (MB)", rare=True))
    ] = Field(default=20, gt=0, le=20, description="largest recording that is transcribed")
    transcribe_folder: Annotated[AbsolutePath | None, Declaration("Model provider")] = Field(
        default=None,
        description=(
            "folder with a model for faster-whisper, which then transcribes on this machine, instead "
            "of a server; `./evertalk install voice` installs faster-whisper; the model is not "
            "downloaded"
        ),
    )

    # Who reads answers aloud; without an address, nobody does.
    speech_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider",
            form=FormRow(
                "speech",
                "{provider}: address",
                "Such as https://api.openai.com/v1; empty switches it off.",
                provider="Spoken answers",
            ),
        ),
    ] = Field(
        default=None,
        description=(
            "base URL of a server that reads answers aloud, such as `https://api.openai.com/v1`: any "
            "with `/audio/speech`; without it, there is no `/voice`"
        ),
    )
    speech_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="speech_url",
            processes=("web", "bot"),
            form=FormRow(
                "speech", "{provider}: key", "Sent to this address only.", provider="Spoken answers"
            ),
        ),
    ] = Field(default=None, description="API key of that server")
    speech_model: Annotated[str, Declaration("Model provider", form=FormRow("speech", "Speech model"))] = (
        Field(default="gpt-4o-mini-tts", description="model that speaks")
    )
    speech_voice: Annotated[
        str, Declaration("Model provider", form=FormRow("speech", "Voice name", rare=True))
    ] = Field(default="alloy", description="its voice")
    speech_per_1000_chars_usd: Annotated[
        Dollars | None,
        Declaration("Model provider", form=FormRow("speech", "Price per 1,000 characters", rare=True)),
    ] = Field(
        default=None,
        description=(
            "price of 1,000 spoken characters; without it, the ledger shows what was spoken at no "
            "known price, and no spending cap holds it"
        ),
    )
