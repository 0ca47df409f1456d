// Adds new rows to a list while its page is open. The list names the path of its stream in `data-live`.
"use strict";

(() => {
  const list = document.querySelector("[data-live]");
  const status = document.getElementById("live-status");
  if (!list || !status) return;

  const mostRows = 200;
  let missed = 0;
  const say = (text) => {
    const more = missed > 0 ? ` ${missed} requests are missing, because this page was too slow.` : "";
    if (status.textContent !== text + more) status.textContent = text + more;
  };

  const source = new EventSource(list.dataset.live);
  source.addEventListener("open", () => say("New requests appear here."));
  source.addEventListener("error", () => {
    const isOver = source.readyState === EventSource.CLOSED;
    say(isOver ? "New requests do not appear. Load the page again." : "The server does not answer. Trying again.");
  });
  source.addEventListener("row", (event) => {
    // The server has escaped all texts of the row.
    list.insertAdjacentHTML("afterbegin", event.data);
    while (list.rows.length > mostRows) list.deleteRow(-1);
  });
  source.addEventListener("missed", (event) => {
    missed += Number(event.data);
    say("New requests appear here.");
  });
})();
