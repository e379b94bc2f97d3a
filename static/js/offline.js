// A service worker that knows one page: what a reader sees when the site cannot be reached. Nothing else is ever kept,
// because a remembered score could be one that was withdrawn since.
const KEPT = "offline-1";
const PAGE = "/offline/";
const PARTS = [PAGE, "/static/css/site.css", "/static/js/theme.js"];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(PARTS)));
});

self.addEventListener("activate", (event) => {
  const forget = async () => Promise.all((await caches.keys()).filter((name) => name !== KEPT).map((name) => caches.delete(name)));
  event.waitUntil(forget());
});

self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  const path = new URL(url).pathname;
  const known = mode === "navigate" ? PAGE : PARTS.find((part) => part === path);
  if (method !== "GET" || !known) return;
  event.respondWith(fetch(event.request).catch(() => caches.match(known)));
});
