/** Icons of the menu and the inbox, all from Lucide; `npm run build` copies their shapes into the bundle. */
import { AlarmClock, Bot, Check, CircleUser, Coins, ExternalLink, Hand, House, Inbox, MessageSquareQuote, MessagesSquare, Paperclip, Settings2, Share2, StickyNote, Tag, UserPlus, UsersRound, Wrench, Zap } from "lucide";
import { svg } from "../shared/h.js";

/** @type {Record<string, [string, Record<string, string | number | undefined>][]>} */
const SHAPES = {
  overview: House, inbox: Inbox, conversations: MessagesSquare, costs: Coins, agents: Bot, channels: Share2, operations: Wrench, operators: UsersRound, settings: Settings2, account: CircleUser,
  take: Hand, resolve: Check, assign: UserPlus, snooze: AlarmClock, label: Tag, note: StickyNote, macro: Zap, return: Bot, attach: Paperclip, canned: MessageSquareQuote, open: ExternalLink,
};

/** Draws an icon in the colour of the text next to it. @param {string} name */
export const drawIcon = (name) => svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 18, height: 18, fill: "none", stroke: "currentColor", "stroke-width": 1.75, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true", focusable: "false" },
  SHAPES[name].map(([tag, shape]) => svg(tag, shape)));
