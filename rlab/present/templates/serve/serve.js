"use strict";
// Forms and links with data-live="#id" fetch their page and put its part of that id in place; without scripts they just load it.
async function live(url, target) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.querySelector(target);
  if (!part) return void location.assign(url);
  document.querySelector(target).replaceWith(part);
  history.replaceState(null, "", url);
}

for (const form of document.querySelectorAll("form[data-live]")) {
  let waiting;
  const show = () => live(`${location.pathname}?${new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""))}`, form.dataset.live);
  form.addEventListener("submit", event => { event.preventDefault(); show(); });
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 250); });
}
addEventListener("click", event => {
  const link = event.target.closest("a[data-live]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  live(link.href, link.dataset.live);
});
