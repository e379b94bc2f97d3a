// Loaded before the first paint (not deferred), so that a stored theme never flashes. site.js does the rest.
try {
  const stored = localStorage.getItem("theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // Storage may be switched off; the system's own preference applies then.
}
