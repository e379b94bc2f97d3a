// Comfort only: every page reads, sorts and filters without this file.
const NEXT = { "": "light", light: "dark", dark: "" };
const WORDS = { "": "auto", light: "light", dark: "dark" };

function currentTheme() {
  return document.documentElement.dataset.theme ?? "";
}

function showTheme(button) {
  const theme = currentTheme();
  button.textContent = `◐ ${WORDS[theme]}`;
  button.setAttribute("aria-label", `Colour theme: ${WORDS[theme]}. Change to ${WORDS[NEXT[theme]]}.`);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // The choice then lasts for this page only.
  }
}

for (const button of document.querySelectorAll("[data-theme-button]")) {
  button.hidden = false;
  showTheme(button);
  button.addEventListener("click", () => {
    setTheme(NEXT[currentTheme()]);
    showTheme(button);
  });
}

// Leave empty filters out of the address, so that it stays short enough to share.
for (const form of document.querySelectorAll("form[data-filters]")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) {
      if (field.name && field.value === "") field.disabled = true;
    }
  });
}

// A table that scrolls sideways can be reached and scrolled by keyboard only where it does scroll.
function markScrollable(box) {
  const scrolls = box.scrollWidth > box.clientWidth;
  if (scrolls) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}

const observer = new ResizeObserver((entries) => entries.forEach((entry) => markScrollable(entry.target)));
for (const box of document.querySelectorAll(".scroll")) observer.observe(box);

// Arrow keys walk from link to link in a table: along a row, and up and down a column.
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function walk(event) {
  const cell = event.target.closest("td, th");
  const step = STEPS[event.key];
  if (!cell || !step || event.target.tagName !== "A" || event.altKey || event.ctrlKey || event.metaKey) return;
  const table = cell.closest("table");
  let [row, column] = [cell.parentElement.rowIndex + step[0], cell.cellIndex + step[1]];
  while (table.rows[row] && column >= 0 && column < table.rows[row].cells.length) {
    const link = table.rows[row].cells[column].querySelector("a");
    if (link) {
      event.preventDefault();
      link.focus();
      return;
    }
    [row, column] = [row + step[0], column + step[1]];
  }
}

for (const table of document.querySelectorAll("table")) table.addEventListener("keydown", walk);

// Without a connection a reader sees the site's own page that says so, and no remembered number.
navigator.serviceWorker?.register("/offline.js").catch(() => {});

// A page of something that goes on is asked for again; without this file its own link does that.
async function follow() {
  const text = await (await fetch(location.href)).text();
  const next = new DOMParser().parseFromString(text, "text/html").querySelector("main");
  if (next) document.querySelector("main").replaceChildren(...next.childNodes);
  watch();
}

function watch() {
  if (document.querySelector("[data-live]")) setTimeout(() => follow().catch(watch), 3000);
}

watch();
