"use strict";
const main = document.querySelector("main[data-task]");
const address = main ? "/v1/tasks/" + main.dataset.task : "";
function show(status) {
  const count = document.getElementById("reports");
  const bar = document.getElementById("bar");
  const badge = document.getElementById("state");
  const number = status.reports_at_least;
  count.textContent = number ? number.toLocaleString("en") + "+" : "under " + status.rounded_to;
  const share = 100 * status.reports_at_least / Number(main.dataset.nodes);
  bar.setAttribute("width", Math.min(100, share) + "%");
  document.getElementById("share").textContent = "about " + Math.floor(share) + "% of the nodes";
  badge.textContent = status.state;
  badge.className = "badge " + status.state;
  document.getElementById("stop").disabled = status.state !== "open";
  main.dataset.live = "yes";
}
async function refresh() {
  try {
    const answer = await fetch(address + "/status");
    if (answer.ok) show(await answer.json());
  } catch (error) {
    // The service may be restarting; the next round tries again.
  }
}
if (main) {
  refresh();
  setInterval(refresh, 10000);
  document.getElementById("stopform").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = document.getElementById("token");
    const said = document.getElementById("said");
    const answer = await fetch(address + "/close", {method: "POST", headers: {Authorization: "Bearer " + field.value}});
    said.textContent = (await answer.json()).message;
    field.value = "";
    refresh();
  });
}
