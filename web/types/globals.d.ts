/** Names that every script of the dashboard may use in its comments. */
import type { components } from "evertalk-api";

declare global {
  /** Shapes of the OpenAPI description: `Api["Session"]`. */
  type Api = components["schemas"];
  /** What a page gets from the frame. */
  type Page = {
    root: HTMLElement, id: string, me: Api["Me"], say: (words: string) => void, signal: AbortSignal,
    go: (address: string, how?: { quiet?: boolean, replace?: boolean }) => void, entitle: (words?: string) => void,
    troubles: (count: number) => void, told: (handovers: Api["ListedHandover"][]) => void, look: () => void,
    toldAlerts: (count: number) => void,
  };
}
