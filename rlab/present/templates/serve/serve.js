"use strict";
// Forms and links with data-live="#id" fetch their page and replace the element with this id; without scripts they load the page.
let turn = 0; // ignore answers that arrive after a newer one
async function live(url, target) {
  const mine = ++turn;
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.querySelector(target);
  if (mine !== turn) return;
  if (!part) return void location.assign(url);
  document.querySelector(target).replaceWith(part);
  history.replaceState(null, "", location.pathname + new URL(url, location.href).search + location.hash);
}

const asked = event => event.target.closest("form[data-live]");
const show = form => live(`${form.getAttribute("action")}?${new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""))}`, form.dataset.live);
let waiting;
addEventListener("submit", event => { if (asked(event)) { event.preventDefault(); show(asked(event)); } });
addEventListener("input", event => { if (asked(event)) { clearTimeout(waiting); waiting = setTimeout(show, 250, asked(event)); } });
addEventListener("click", event => {
  const link = event.target.closest("a[data-live]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  live(link.href, link.dataset.live);
});

// The list of samples on the page of a run.
for (const place of document.querySelectorAll("[data-fetch]")) {
  place.id = "browser";
  live(place.dataset.fetch + location.search, "#browser");
}

// Update the figures of a running run, and show what came of it when it ends.
const watched = document.getElementById("live"), short = value => Number(value.toPrecision(3));
async function look() {
  const now = await (await fetch(watched.dataset.progress)).json();
  now.ended = Object.entries(now.ended).map(([word, count]) => `${count} ${word}`).join(", ");
  now.best = now.best.map(short).join(", ");
  for (const place of watched.querySelectorAll("[data-of]")) {
    const value = now[place.dataset.of];
    place.textContent = value === null || value === undefined || value === "" ? "–" : typeof value === "number" ? short(value).toLocaleString() : value;
  }
  if (now.running) setTimeout(look, 500);
  else live(location.href, "#run");
}
if (watched) look();

document.documentElement.classList.add("lively");
