"use strict";
// Controls are made here, so that a page without scripts shows none. All of them work from the keyboard.
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

// Tables: click a heading to sort; filter by words and by comparisons such as queries<50.
const key = (row, at) => row.cells[at].dataset.key ?? row.cells[at].textContent.trim();
const order = (a, b) => {
  const [x, y] = [a === "" || a === "–" ? NaN : Number(a), b === "" || b === "–" ? NaN : Number(b)];
  if (!isNaN(x) && !isNaN(y)) return x - y;
  return isNaN(x) && isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : isNaN(x) ? 1 : -1;
};

function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    if (!head.textContent.trim()) return;
    const button = make("button", { type: "button", className: "sort" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => order(key(a, at), key(b, at)) * (down ? -1 : 1)));
    });
  });
}

function filterable(table) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells].map(head => head.textContent.trim().toLowerCase().replace(/\s+/g, " "));
  const figure = table.tHead.querySelector("th.figure"), example = figure && heads[[...figure.parentElement.cells].indexOf(figure)].split(" ")[0];
  const input = make("input", { type: "search", placeholder: example ? `filter: words, or ${example}<50` : "filter by words" });
  input.setAttribute("aria-label", "filter the table");
  const count = make("output", { textContent: `${rows.length} rows` });
  const test = (row, term) => {
    const [, name, sign, value] = term.match(/^([^<>=]+)(<=|>=|<|>|=)(.+)$/) ?? [];
    const at = name ? heads.findIndex(head => head.startsWith(name)) : -1;
    if (at < 0) return row.textContent.toLowerCase().includes(term);
    const number = parseFloat(key(row, at)), limit = value.endsWith("%") ? parseFloat(value) / 100 : Number(value);
    if (sign === "=") return row.cells[at].textContent.toLowerCase().includes(value) || number === limit;
    return (sign[1] && number === limit) || (sign[0] === "<" ? number < limit : number > limit);
  };
  input.addEventListener("input", () => {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      row.hidden = !terms.every(term => test(row, term));
      left += !row.hidden;
      const link = row.querySelector("a[href^='#']"), target = link && document.getElementById(link.getAttribute("href").slice(1));
      if (target) target.hidden = row.hidden;
    }
    count.textContent = left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
  });
  table.parentElement.before(make("div", { className: "filter" }, input, count));
}

for (const table of document.querySelectorAll(".wide > table")) {
  if (table.tBodies[0].rows.length > 1) sortable(table);
  if (table.tBodies[0].rows.length > 15) filterable(table);
}

// Figures: enlarge over the page; Escape closes.
function shrink() {
  const large = document.querySelector("figure.large");
  if (!large) return;
  large.classList.remove("large");
  document.body.classList.remove("still");
  const button = large.querySelector(".enlarge");
  Object.assign(button, { textContent: "⤢", title: "enlarge" }).setAttribute("aria-label", "enlarge");
  button.focus();
}
for (const figure of document.querySelectorAll("figure:not(.three *)")) {
  const button = make("button", { type: "button", className: "enlarge", textContent: "⤢", title: "enlarge" });
  button.setAttribute("aria-label", "enlarge");
  button.addEventListener("click", () => {
    if (figure.classList.contains("large")) return shrink();
    shrink();
    figure.classList.add("large");
    document.body.classList.add("still");
    Object.assign(button, { textContent: "✕", title: "close" }).setAttribute("aria-label", "close");
  });
  figure.prepend(button);
  const picture = figure.matches(".picture") && figure.querySelector("img");
  if (picture) picture.addEventListener("click", () => button.click());
}
addEventListener("keydown", event => event.key === "Escape" && shrink());

// Samples: a slider between both versions, marks with an opacity, the difference, a zoom, and for clips a slider along the frames.
const fetched = document.getElementById("controls");

function strip(viewer, stage, box) {
  const timeline = viewer.querySelector(".timeline"), [range, told] = box.querySelector(".play").children;
  const frames = timeline.dataset.frames.split(" ").map(Number), length = Number(timeline.dataset.length);
  const show = () => {
    const frame = frames[range.value];
    viewer.style.setProperty("--frame", range.value);
    timeline.style.setProperty("--at", (frame + 0.5) / length);
    told.textContent = `frame ${frame + 1} of ${length}`;
    for (const mark of stage.querySelectorAll(".marks path[data-first]"))
      mark.style.display = frame >= mark.dataset.first && frame <= mark.dataset.last ? "" : "none";
  };
  range.max = frames.length - 1;
  range.value = viewer.style.getPropertyValue("--frame").trim();
  range.addEventListener("input", show);
  show();
  timeline.after(box.querySelector(".play"));
}

for (const viewer of document.querySelectorAll(".viewer")) {
  const stage = viewer.querySelector(".stage"), box = fetched.content.cloneNode(true).firstElementChild;
  const input = name => box.querySelector(`.${name} input`), leads = stage.classList.contains("leads");
  const wipe = input("wipe"), set = (name, value) => stage.style.setProperty(name, value);
  const bind = (name, property, value, unit = "") => {
    const range = input(name);
    range.value = value;
    range.addEventListener("input", () => set(property, range.value + unit));
    set(property, value + unit);
  };
  const heat = stage.classList.contains("heat"); // a map over the input: nothing to slide between
  bind("wipe", "--wipe", leads || heat ? 100 : 50, "%");
  bind("overlay", "--overlay", heat ? 1 : leads ? 0.35 : 0.5);
  bind("zoom", "--zoom", 1);
  box.querySelector(".change span").textContent = `difference × ${stage.style.getPropertyValue("--factor").trim()}`;
  input("change").addEventListener("change", event => stage.classList.toggle("difference", event.target.checked));
  if (heat) {
    box.querySelector(".overlay span").textContent = "map";
    for (const name of ["wipe", "change"]) box.querySelector(`.${name}`).remove();
  }
  const original = stage.querySelector(".before"), copy = name => {
    const node = original.cloneNode(true);
    node.setAttribute("class", name);
    node.setAttribute("alt", "");
    return node;
  };
  if (!heat && !leads) stage.querySelector(".after").prepend(copy(""));
  addEventListener("beforeprint", () => viewer.querySelector(".original") || stage.before(copy("original"))); // print both versions
  const drag = event => {
    if (event.pointerType === "touch" || !(event.buttons & 1)) return;
    const area = stage.getBoundingClientRect();
    wipe.value = Math.round(100 * Math.min(1, Math.max(0, (event.clientX - area.left) / area.width)));
    wipe.dispatchEvent(new Event("input"));
  };
  if (!heat) for (const name of ["pointerdown", "pointermove"]) stage.addEventListener(name, drag);
  viewer.querySelector(".scroll").after(box);
  if (viewer.querySelector(".timeline")) strip(viewer, stage, box);
  else box.querySelector(".play").remove();
}
document.documentElement.classList.add("lively");
