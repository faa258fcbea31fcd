// Comfort only: everything works without it. Nothing is loaded from elsewhere, nothing is kept.
"use strict";

const WAIT = 200; // milliseconds after the last move before a plan is asked for

async function page(address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  return [answer, new DOMParser().parseFromString(await answer.text(), "text/html")];
}

// Takes over what a newer page says in one place, and what it says is wrong with each field.
function takeOver(fresh, place) {
  const here = document.querySelector(place), there = fresh.querySelector(place);
  const key = document.getElementById("key")?.value;
  if (here && there) here.replaceChildren(...there.childNodes);
  if (key) document.getElementById("key").value = key;
  const announcement = document.getElementById("announcement");
  if (announcement) announcement.textContent = here.querySelector(".expected")?.textContent ?? "No plan: something has to be corrected.";
  for (const field of document.querySelectorAll("form[data-live] .field")) {
    const input = field.querySelector("[id]"), newer = input && fresh.getElementById(input.id);
    if (!newer) continue;
    const other = newer.closest(".field");
    field.className = other.className;
    field.querySelector(".wrongly")?.remove();
    const wrongly = other.querySelector(".wrongly");
    if (wrongly) input.after(wrongly);
    for (const name of ["aria-invalid", "aria-describedby"])
      newer.hasAttribute(name) ? input.setAttribute(name, newer.getAttribute(name)) : input.removeAttribute(name);
  }
}

function showValue(slider) {
  const shown = document.getElementById(slider.id + "-value");
  if (shown) shown.textContent = slider.value + slider.dataset.output;
}

for (const slider of document.querySelectorAll("input[type=range]")) {
  const shown = document.createElement("output");
  shown.id = slider.id + "-value";
  shown.htmlFor = slider.id;
  slider.after(shown);
  showValue(slider);
}

// What stands in a form, as an address says it; and what stood in it when the page came.
const said = (form) => new URLSearchParams(new FormData(form)).toString();
function saidAtFirst(form) {
  const first = new URLSearchParams();
  for (const input of form.elements) {
    if (!input.name || input.type === "submit") continue; // a button is sent only when it is pressed
    const options = [...(input.options ?? [])];
    const chosen = options.find((option) => option.defaultSelected) ?? options[0];
    if (input.type === "checkbox" && !input.defaultChecked) continue;
    first.append(input.name, chosen ? chosen.value : input.defaultValue);
  }
  return first.toString();
}

// Says that what stands beside a form is not for what is asked now; until both agree, nothing there can be sent.
// What is on its way is told below the button, where nothing moves; what failed, above everything.
const COMING = "This is still what you asked for before. The new numbers are on their way.";
const FAILED = "This is still what you asked for before: the new numbers could not be had. " +
  "Check that sottovoce is still running, and change something again.";

function showStale(place, sentence) {
  const here = document.querySelector(place);
  for (const button of here.querySelectorAll("form button")) button.disabled = Boolean(sentence);
  for (const old of here.querySelectorAll(".behind")) old.remove();
  if (!sentence) return;
  const told = document.createElement("p");
  told.className = "caution behind";
  told.textContent = sentence;
  sentence === FAILED ? here.prepend(told) : here.querySelector("form")?.append(told);
}

for (const form of document.querySelectorAll("form[data-live]")) {
  let later, asked = 0, shown = saidAtFirst(form);
  const refresh = async () => {
    const turn = ++asked, query = said(form), address = form.getAttribute("action") + "?" + query;
    let fresh;
    try {
      const [answer, found] = await page(address);
      fresh = found.querySelector(form.dataset.live) && !answer.redirected ? found : null;
    } catch {
      fresh = null;
    }
    if (turn !== asked) return;
    if (!fresh) {
      showStale(form.dataset.live, FAILED);
      document.getElementById("announcement")?.replaceChildren(FAILED);
      return;
    }
    takeOver(fresh, form.dataset.live);
    shown = query;
    showStale(form.dataset.live, said(form) === shown ? "" : COMING);
    history.replaceState(null, "", address);
  };
  form.addEventListener("input", (event) => {
    if (event.target.type === "range") showValue(event.target);
    clearTimeout(later);
    ++asked; // what is under way is not for what stands here now
    if (/^(question|ask-\d+)$/.test(event.target.id)) return form.requestSubmit();
    showStale(form.dataset.live, said(form) === shown ? "" : COMING);
    later = setTimeout(refresh, WAIT);
  });
  if (said(form) !== shown) { // a browser that remembers a form may not remember what stood beside it
    showStale(form.dataset.live, COMING);
    refresh();
  }
}

// Shows of each column what its kind needs.
function showKind(choice) {
  for (const part of choice.closest("fieldset").querySelectorAll(".of"))
    part.hidden = !part.classList.contains(choice.value);
}
for (const choice of document.querySelectorAll("fieldset.column select[name^='kind-']")) {
  showKind(choice);
  choice.addEventListener("change", () => showKind(choice));
}

// Columns of people and budgets need no description.
function showColumns() {
  const roles = ["person", "budget"].map((role) => document.getElementById(role).value);
  for (const column of document.querySelectorAll("fieldset.column"))
    column.hidden = roles.includes(column.dataset.column);
}
if (document.querySelector("fieldset.column")) {
  for (const role of ["person", "budget"]) document.getElementById(role).addEventListener("change", showColumns);
  showColumns();
}

// Looks how far work has come, and goes on to what came of it.
const job = document.querySelector("[data-poll]");
if (job) {
  const look = async () => {
    const [answer, fresh] = await page(location.href);
    if (answer.redirected) return location.replace(answer.url);
    const there = fresh.getElementById("job");
    if (!there) return location.reload();
    if (!job.contains(document.activeElement) || !there.dataset.poll) job.replaceChildren(...there.childNodes);
    if (there.dataset.poll) setTimeout(look, Number(job.dataset.poll));
  };
  setTimeout(look, Number(job.dataset.poll));
}
