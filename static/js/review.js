// The desk's keys. Everything here is also a link or a form; without this file the desk works by mouse and Tab.
const TYPING = "input:not([type=checkbox]), textarea, select";
const helpBox = document.querySelector("[data-help-box]");

function goTo(key) {
  const form = document.querySelector(`form[data-act="${key}"]`);
  if (!form) return false;
  const details = form.closest("details");
  if (details) details.open = true;
  const field = form.querySelector("[data-first]");
  field.focus();
  if (field.select) field.select();
  return true;
}

function follow(key) {
  const link = document.querySelector(`[data-key="${key}"]`);
  if (link) link.click();
  return Boolean(link);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && event.target.matches(TYPING)) event.target.blur();
  if (event.target.matches(TYPING) || helpBox.open) return;
  const key = event.key === "?" ? "?" : event.key.toLowerCase();
  if (/^[a-z?]$/.test(key) && (goTo(key) || follow(key))) event.preventDefault();
}

// Enter in a ticked box sends the form as Enter in a field does, so that a key, a tick and Enter decide.
function onTick(event) {
  if (event.key !== "Enter" || !event.target.matches("[data-act] input[type=checkbox]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
}

const helpButton = document.querySelector("[data-help]");
helpButton.hidden = false;
helpButton.addEventListener("click", () => helpBox.showModal());
document.addEventListener("keydown", onTick);
document.addEventListener("keydown", onKey);

// A second click while the first is on its way does nothing here, and nothing twice on the server.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.isSent) event.preventDefault();
    form.dataset.isSent = "1";
  });
}
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-is-sent]")) delete form.dataset.isSent;
});

const all = document.querySelector("[data-select-all]");
if (all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of document.querySelectorAll("input[name=run]")) box.checked = all.checked;
  });
}
