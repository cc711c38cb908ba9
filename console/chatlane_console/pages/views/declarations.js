// What the settings declare: platforms, accounts and agents, read-only and without secrets.
import { service } from "../modules/api.js";
import { count, duration } from "../modules/format.js";
import { html, useEffect, useState } from "../modules/html.js";

export function Declarations() {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    document.title = "Settings · chatlane";
    service
      .declarations()
      .then(setFound)
      .catch((error) => setProblem(error instanceof Error ? error.message : "no answer"));
  }, []);
  if (!found) return html`<h1>Settings</h1><p class="soft" role="status">${problem || "Loading"}</p>`;
  return html`
    <h1>Settings</h1>
    <p class="soft">What <code>chatlane.toml</code> declares, as a router has read it. Resets without a rule of the platform: ${resets(found.resets)}.</p>
    <h2>Agents</h2>
    ${table(
      "Agents",
      ["Agent", "Profiles", "Delivery", "While a turn runs", "Lease", "Attempts", "Waits for workers", "Sends to"],
      found.agents.map((/** @type {any} */ agent) => [
        agent.agent,
        listed(agent.profiles),
        agent.delivery,
        agent.busy,
        duration(agent.lease_seconds),
        count(agent.max_attempts),
        duration(agent.max_wait_seconds),
        listed(agent.send_to),
      ]),
    )}
    <h2>Platforms</h2>
    ${table(
      "Platforms",
      ["Platform", "While a turn runs", "Resets", "Limits", "Other bots", "Commands"],
      found.platforms.map((/** @type {any} */ platform) => [
        platform.platform,
        platform.busy ?? "as the agent says",
        platform.resets.length ? resets(platform.resets) : "default",
        listed(platform.limits.map((/** @type {any} */ it) => `${count(it.messages)} in ${duration(it.seconds)} of a ${it.scope}`)),
        platform.bots_allowed ? "answered" : "ignored",
        `${platform.command_prefix}…`,
      ]),
    )}
    <h2>Accounts</h2>
    ${table(
      "Accounts",
      ["Account", "Profiles", "Home channel", "Members see rooms", "Front ends name people of"],
      found.platforms.flatMap((/** @type {any} */ platform) =>
        platform.accounts.map((/** @type {any} */ account) => [
          `${platform.platform}/${account.account}`,
          listed(account.profiles),
          account.has_home ? "yes" : "none",
          account.shows_rooms ? "yes" : "no",
          listed(account.people_of),
        ]),
      ),
    )}`;
}

/** @param {string[]} names */
const listed = (names) => names.join(", ") || "none";

/** Return rules for resets as a sentence. @param {any[]} rules */
function resets(rules) {
  const said = rules.map((rule) => {
    const parts = [rule.mode];
    if (rule.mode === "daily" || rule.mode === "both") parts.push(`at ${rule.at_hour}:00 ${rule.timezone}`);
    if (rule.mode === "idle" || rule.mode === "both") parts.push(`after ${duration(rule.idle_seconds)} of quiet`);
    return `${rule.session_class ? `${rule.session_class}: ` : ""}${parts.join(" ")}`;
  });
  return said.join("; ");
}

/** @param {string} label @param {string[]} columns @param {string[][]} rows */
function table(label, columns, rows) {
  return html`<div class="grid-table" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map(
        ([name, ...values]) =>
          html`<tr key=${name}><th scope="row" class="mono">${name}</th>${values.map((value) => html`<td>${value}</td>`)}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}
