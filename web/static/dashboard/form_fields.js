/** Rows of the forms of settings. `python -m tests.kit.settings_pages` writes this file from shared/config/fields. */
import { t } from "./i18n.js";

/**
 * A setting, its label, and one sentence of help; `rare` ones are folded, with the help of the documentation.
 * @typedef {[name: string, label: string, help?: string]} Field
 */
/** @type {Record<string, {fields: Field[], rare?: Field[]}>} */
export const FIELDS = {
  model: { fields: [
    ["ANTHROPIC_API_KEY", t("{provider}: key", { provider: "Anthropic" }), t("Sent to this provider only.")],
    ["ANTHROPIC_BASE_URL", t("{provider}: address", { provider: "Anthropic" }), t("Any server with the Messages API.")],
    ["OPENAI_API_KEY", t("{provider}: key", { provider: "OpenAI" }), t("Sent to this provider only.")],
    ["OPENAI_BASE_URL", t("{provider}: address", { provider: "OpenAI" }), t("Any server with Chat Completions, such as http://127.0.0.1:1234/v1.")],
    ["EVERTALK_MODEL", t("Chat model"), t("Answers people; if empty, chosen from the account's models.")],
    ["EVERTALK_SUMMARY_MODEL", t("Summary model"), t("Writes summaries; if empty, a small model of the account.")],
    ["EVERTALK_FALLBACK_MODELS", t("Fallback models"), t("Used in this order while the chat model fails; at most four.")],
    ["CONTEXT_MAX_OUTPUT_TOKENS", t("Maximum answer length"), t("In tokens; the preset’s value if empty.")],
    ["EVERTALK_MODELS", t("More models")]] },
  telegram: { fields: [
    ["TELEGRAM_BOT_TOKEN", t("Token of the bot")],
    ["EVERTALK_TELEGRAM_ACCESS", t("Who may write"), t("People who are approved (pairing), people on the list (allowlist), or anyone (open).")],
    ["EVERTALK_TELEGRAM_ALLOWED", t("Allowed people and groups"), t("IDs of people and groups, separated by commas; group IDs begin with -.")],
    ["EVERTALK_TELEGRAM_AGENT", t("Agent"), t("Answers new conversations of this bot.")],
    ["EVERTALK_TELEGRAM_BOTS", t("More bots")]], rare: [
    ["EVERTALK_TELEGRAM_AUDIENCE", t("Audience")],
    ["EVERTALK_TELEGRAM_DRAFTS", t("Stream answers as drafts")],
    ["EVERTALK_TELEGRAM_RICH", t("Tables and formulas")],
    ["EVERTALK_TELEGRAM_REACTIONS", t("Show a reaction while working")],
    ["EVERTALK_TELEGRAM_CHANNELS", t("Answer posts of channels")],
    ["EVERTALK_TELEGRAM_INLINE", t("Answer inline queries")],
    ["EVERTALK_TELEGRAM_GUESTS", t("Answer in chats without the bot"), t("Off, approved people only (known), or anyone.")],
    ["EVERTALK_TELEGRAM_GUEST_QUESTIONS", t("Guest questions per person and hour")],
    ["EVERTALK_TELEGRAM_SECRETARY", t("Drafts for business accounts")],
    ["EVERTALK_TELEGRAM_SECRETARY_CHATS", t("Customers who get drafts")],
    ["EVERTALK_TELEGRAM_SECRETARY_LIST", t("List of customers")],
    ["EVERTALK_TELEGRAM_SECRETARY_AUTO", t("Customers answered without approval")],
    ["EVERTALK_TELEGRAM_SECRETARY_HOURS", t("Hours in which a draft can be sent")]] },
  web: { fields: [
    ["EVERTALK_ALLOWED_ORIGINS", t("Allowed origins"), t("Such as https://shop.example, separated by commas.")]] },
  voice: { fields: [
    ["EVERTALK_TRANSCRIBE_URL", t("{provider}: address", { provider: t("Voice") }), t("Such as https://api.openai.com/v1; empty switches it off.")],
    ["EVERTALK_TRANSCRIBE_KEY", t("{provider}: key", { provider: t("Voice") }), t("Sent to this address only.")],
    ["EVERTALK_TRANSCRIBE_MODEL", t("Transcription model")]], rare: [
    ["EVERTALK_TRANSCRIBE_PER_MINUTE_USD", t("Price per minute")],
    ["EVERTALK_TRANSCRIBE_MOST_MINUTES", t("Maximum recording length (minutes)")],
    ["EVERTALK_TRANSCRIBE_MOST_MB", t("Maximum recording size (MB)")]] },
  speech: { fields: [
    ["EVERTALK_SPEECH_URL", t("{provider}: address", { provider: t("Spoken answers") }), t("Such as https://api.openai.com/v1; empty switches it off.")],
    ["EVERTALK_SPEECH_KEY", t("{provider}: key", { provider: t("Spoken answers") }), t("Sent to this address only.")],
    ["EVERTALK_SPEECH_MODEL", t("Speech model")]], rare: [
    ["EVERTALK_SPEECH_VOICE", t("Voice name")],
    ["EVERTALK_SPEECH_PER_1000_CHARS_USD", t("Price per 1,000 characters")]] },
  pictures: { fields: [
    ["EVERTALK_PICTURE_URL", t("{provider}: address", { provider: t("Pictures") }), t("Such as https://api.openai.com/v1; empty switches it off.")],
    ["EVERTALK_PICTURE_KEY", t("{provider}: key", { provider: t("Pictures") }), t("Sent to this address only.")],
    ["EVERTALK_PICTURE_MODEL", t("Image model")]], rare: [
    ["EVERTALK_PICTURE_USD", t("Price per picture")]] },
  context: { fields: [
    ["EVERTALK_PRESET", t("Preset"), t("How much the model receives, and when the rest is summarised.")],
    ["EVERTALK_CONTEXT_WINDOW", t("Context window"), t("Upper limit in tokens; the preset’s value if empty.")]], rare: [
    ["EVERTALK_SOFT_BUDGET", t("Summarise above")],
    ["EVERTALK_RESERVE", t("Kept free")],
    ["EVERTALK_FLUSH_THRESHOLD", t("Save memory before the limit")],
    ["EVERTALK_KEEP_TURNS", t("Newest turns kept verbatim")],
    ["EVERTALK_MAX_ROUNDS", t("Newest rounds sent")],
    ["EVERTALK_HISTORY_TURNS", t("Turns of history by channel")],
    ["EVERTALK_WINDOW_MESSAGES", t("Newest messages sent")],
    ["EVERTALK_TRIM_TOKENS", t("Leave out old messages above")],
    ["EVERTALK_COMPACTION_HOOK_URL", t("Hook of summaries: address")],
    ["EVERTALK_COMPACTION_HOOK_SECRET", t("Hook of summaries: secret")],
    ["EVERTALK_COMPACTION_HOOK_SUMMARY", t("Hook of summaries: send their text")]] },
  recall: { fields: [
    ["EVERTALK_MEANING", t("Search by meaning (90 MB of memory)"), t("Also finds other wordings and languages, with a model on this machine.")]], rare: [
    ["EVERTALK_RERANK_URL", t("{provider}: address", { provider: t("Recall") })],
    ["EVERTALK_RERANK_KEY", t("{provider}: key", { provider: t("Recall") })],
    ["EVERTALK_RERANK_MODEL", t("Reranking model")],
    ["EVERTALK_EMBEDDINGS_URL", t("{provider}: address", { provider: t("Embeddings") })],
    ["EVERTALK_EMBEDDINGS_KEY", t("{provider}: key", { provider: t("Embeddings") })],
    ["EVERTALK_EMBEDDINGS_MODEL", t("Embedding model")]] },
  tools: { fields: [
    ["EVERTALK_MCP_SERVERS", t("MCP servers")]] },
  caps: { fields: [
    ["EVERTALK_CAP_TOTAL_PER_DAY_USD", t("Per day"), t("In dollars, for all people together.")],
    ["EVERTALK_CAP_PERSON_PER_DAY_USD", t("Per person and day"), t("In dollars; no limit if empty.")],
    ["EVERTALK_CAP_SESSION_USD", t("Per conversation and day"), t("In dollars; no limit if empty.")],
    ["EVERTALK_CAP_VISITOR_PER_DAY_USD", t("Per anonymous visitor and day"), t("In dollars, for visitors of a public site.")],
    ["EVERTALK_TIMEZONE", t("Time zone"), t("Daily spending limits reset at midnight in this zone.")]], rare: [
    ["EVERTALK_CAP_NETWORK_PER_DAY_USD", t("Per network and day")],
    ["EVERTALK_CAP_GUESTS_PER_DAY_USD", t("All guest chats together, per day")],
    ["EVERTALK_CAP_SECRETARY_PER_DAY_USD", t("All customers of an owner, per day")],
    ["EVERTALK_CAP_CUSTOMER_PER_DAY_USD", t("Per customer and day")],
    ["EVERTALK_CAP_TOKENS_PER_DAY", t("Tokens of models without a price, per day")],
    ["EVERTALK_CAP_VISITORS_PER_HOUR_PERCENT", t("Share of all visitors in an hour, in percent")]] },
  people: { fields: [
    ["EVERTALK_HANDOVER", t("Ask for a human"), t("Lets people and the assistant ask for an operator.")],
    ["EVERTALK_WORKING_HOURS", t("Working hours"), t("Such as Mo-Fr 9-17:30; at any time if empty.")],
    ["EVERTALK_RETENTION_DAYS", t("Erase conversations after (days)"), t("Counted from the last message; never if empty.")]], rare: [
    ["EVERTALK_QUIET_HOURS", t("Quiet hours")],
    ["EVERTALK_HANDOVER_MINUTES", t("Return if no operator comes (minutes)")],
    ["EVERTALK_HANDOVER_SILENCE_MINUTES", t("Return after operator silence (minutes)")],
    ["EVERTALK_AWAY_TEXT", t("Message outside working hours")]] },
  alerts: { fields: [
    ["EVERTALK_ALERT_TELEGRAM_CHATS", t("Telegram chats"), t("Chat IDs, separated by commas; the first bot writes there.")],
    ["EVERTALK_ALERT_WEBHOOK_URL", t("Webhook: address"), t("An https address that alerts are posted to.")],
    ["EVERTALK_ALERT_WEBHOOK_SECRET", t("Webhook: secret"), t("Signs alerts; at least 32 characters.")],
    ["EVERTALK_ALERT_SMTP_URL", t("Mail server"), t("Such as smtp://NAME:PASSWORD@HOST:587.")],
    ["EVERTALK_ALERT_EMAIL_FROM", t("Sender"), t("Needed with a mail server.")],
    ["EVERTALK_ALERT_EMAIL_TO", t("Recipients"), t("Needed with a mail server, separated by commas.")]] },
  backups: { fields: [
    ["EVERTALK_BACKUP_COPY_DIR", t("Folder for copies"), t("Mount point of another disk or share, such as /mnt/backups.")]] },
};
