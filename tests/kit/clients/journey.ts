/** A conversation by the generated TypeScript client: talk, compact, export. `node journey.mjs URL TOKEN` */
import createClient from "openapi-fetch";
import type { paths } from "./api";

declare const process: { argv: string[] };

const FILLER = "We walked along the river and talked of this and that. ".repeat(40);
const TURNS = 6;

/** Returns the data of an answer, or throws its error. */
async function need<Data>(answer: Promise<{ data?: Data; error?: unknown }>): Promise<Data> {
  const { data, error } = await answer;
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const [baseUrl, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const { session_id: session } = await need(client.POST("/api/v1/sessions", { body: { external_id: "typescript", name: "Ada" } }));
const answers: string[] = [];
for (let number = 0; number < TURNS; number += 1) {
  const answer = await need(client.POST("/api/v1/sessions/{id}/messages", {
    params: { path: { id: session }, query: { wait: 60 } }, body: { text: `Number ${number}. ${FILLER}` },
  }));
  // The same address sends events to a client that asks for them; this one reads JSON.
  answers.push(typeof answer === "object" && "answer" in answer ? answer.answer?.text ?? "" : "");
}
const compacted = await need(client.POST("/api/v1/commands/{name}", {
  params: { path: { name: "compact" } }, body: { session_id: session, force: true },
}));
if (typeof compacted === "string") throw new Error("events instead of JSON");
const page = await need(client.GET("/api/v1/sessions/{id}/messages", { params: { path: { id: session } } }));
const exported = await need(client.GET("/api/v1/export", { params: { query: { session_id: session } }, parseAs: "text" }));
console.log(JSON.stringify({
  answers, compacted: compacted.result, succeeded: compacted.success, messages: page.messages.length, exported,
}));
