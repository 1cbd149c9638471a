/** Forms of settings by subject; their rows are declared with the settings, and the server says how each is edited. */
import { FIELDS } from "./form_fields.js";
import { t } from "./i18n.js";

/**
 * @typedef {import("./form_fields.js").Field} Field
 * @typedef {{id: string, name: string, help: string, fields: Field[], rare?: Field[], test?: "model" | "voice" | "speech" | "pictures" | "recall" | "telegram" | "alerts" | "backups", more?: [string, string]}} Section `more` is an address and where it leads
 */
/** Forms of the settings page; `test` names the test button's check, if a form has one. @type {Section[]} */
export const SECTIONS = [
  { id: "model", name: t("Model"), help: t("The model that answers. A key is enough; without a key or an address, the built-in demo answers."), test: "model", ...FIELDS.model },
  { id: "telegram", name: "Telegram", help: t("Write /newbot to @BotFather in Telegram, and enter the token that it gives you."), test: "telegram", more: ["/dashboard/pairing", t("Access requests")], ...FIELDS.telegram },
  { id: "web", name: t("Website"), help: t("Pages of these origins may show the chat. A site has its own agent, look and uploads."), more: ["/dashboard/sites", t("Sites")], ...FIELDS.web },
  { id: "voice", name: t("Voice"), help: t("Transcribes voice messages with any server that has OpenAI’s transcription API. Without an address, they are declined."), test: "voice", ...FIELDS.voice },
  { id: "speech", name: t("Spoken answers"), help: t("Reads answers aloud for people who chose it with /voice, with any server that has OpenAI’s speech API. Without an address, nothing is spoken."), test: "speech", ...FIELDS.speech },
  { id: "pictures", name: t("Pictures"), help: t("Creates pictures on request with any server that has OpenAI’s images API. Without an address, the assistant has no such tool."), test: "pictures", ...FIELDS.pictures },
  { id: "context", name: t("Context"), help: t("How much of a conversation the model receives. These numbers override the preset; an agent can have its own."), more: ["/dashboard/agents", t("Agents")], ...FIELDS.context },
  { id: "recall", name: t("Recall"), help: t("A server with /rerank improves the order of recalled passages. One with /embeddings searches by meaning instead of the model on this machine. Each has at most 0.3 s."), test: "recall", ...FIELDS.recall },
  { id: "tools", name: t("Tools"), help: t("Addresses of tool servers; an agent’s page adds, tests and removes them individually."), more: ["/dashboard/agents", t("Agents")], ...FIELDS.tools },
  { id: "caps", name: t("Spending"), help: t("Spending limits in US dollars. A person who reaches one gets no answer until the next day."), more: ["/dashboard/costs", t("Costs")], ...FIELDS.caps },
  { id: "people", name: t("People"), help: t("When operators take over, and how long conversations are kept."), ...FIELDS.people },
  { id: "alerts", name: t("Alerts"), help: t("Recipients of alerts about problems."), test: "alerts", more: ["/dashboard/alerts", t("All alerts")], ...FIELDS.alerts },
  { id: "backups", name: t("Backups"), help: t("Copies each backup and the erasure log to another disk. A copy contains the secret key: protect it like the data."), test: "backups", ...FIELDS.backups },
];

/** Tabs of the page, each with its forms. @type {[string, string[]][]} */
export const TABS = [[t("Model"), ["model"]], [t("Channels"), ["telegram", "web"]], [t("Voice and pictures"), ["voice", "speech", "pictures"]],
  [t("Context"), ["context", "recall", "tools"]], [t("Spending"), ["caps"]], [t("Operations"), ["people", "alerts", "backups"]]];

/** Label and place of each setting that has a form, by its name. @type {Map<string, {label: string, section: string, id: string}>} */
export const FORMS = new Map(SECTIONS.flatMap(({ id, name, fields, rare = [] }) => [...fields, ...rare].map(([setting, label]) => [setting, { label, section: name, id }])));
