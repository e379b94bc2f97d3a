// Lets a reader explore a drawing with Plotly. Nothing is fetched before somebody asks.
// Plotly writes its rules into the sheet with the first id instead of an inline style, and leaves out the styles of its
// maps, which no chart here uses, where an element has the second: so the security policy stays strict.
const SHEET = "plotly.js-style-global";
const NO_MAPS = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
let library;

function load(figure) {
  if (!library) document.head.append(Object.assign(document.createElement("meta"), { id: NO_MAPS }));
  library ??= Promise.all([addSheet(figure.dataset.sheet), addScript(figure.dataset.plotly)]);
  return library;
}

function addSheet(address) {
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address, id: SHEET });
  return settle(link);
}

function addScript(address) {
  return settle(Object.assign(document.createElement("script"), { src: address }));
}

function settle(element) {
  return new Promise((done, fail) => {
    element.addEventListener("load", done);
    element.addEventListener("error", () => fail(new Error("not loaded")));
    document.head.append(element);
  });
}

function whenSeen(figure) {
  return new Promise((done) => {
    new IntersectionObserver((entries, watcher) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      done();
    }).observe(figure);
  });
}

// Colours in a figure are names of tokens; the browser knows what they are in the theme of the moment.
function resolve(value, probe) {
  if (Array.isArray(value)) return value.map((part) => resolve(part, probe));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, resolve(part, probe)]));
  }
  if (typeof value !== "string" || !value.startsWith("token:")) return value;
  probe.style.color = `var(--${value.slice(6)})`;
  return getComputedStyle(probe).color;
}

function dress(layout, probe) {
  const ink = resolve("token:ink-2", probe);
  const axis = { gridcolor: resolve("token:line", probe), zerolinecolor: resolve("token:line-2", probe), automargin: true };
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink };
  return {
    ...layout, font, margin: { l: 48, r: 16, t: 16, b: 48 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis }, legend: { orientation: "h", y: -0.25 },
    hoverlabel: { font, bgcolor: resolve("token:paper", probe) },
    modebar: { bgcolor: "transparent", color: resolve("token:muted", probe), activecolor: ink },
  };
}

async function draw(figure) {
  const [answer] = await Promise.all([fetch(`${figure.dataset.chart}.json`), whenSeen(figure).then(() => load(figure))]);
  const { data, layout, summary } = await answer.json();
  const drawing = figure.querySelector(".chart__drawing");
  let plot = figure.querySelector(".chart__plot");
  if (!plot) {
    plot = Object.assign(document.createElement("div"), { className: "chart__plot" });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", summary);
    drawing.after(plot);
  }
  drawing.hidden = true;
  plot.hidden = false;
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  await window.Plotly.react(plot, resolve(data, figure), dress(layout, figure), config);
  figure.style.color = "";
}

async function explore(figure, button) {
  const plot = figure.querySelector(".chart__plot:not([hidden])");
  if (plot) {
    plot.hidden = true;
    figure.querySelector(".chart__drawing").hidden = false;
    button.textContent = "Explore";
    return;
  }
  button.disabled = true;
  button.textContent = "Loading";
  try {
    await draw(figure);
    button.textContent = "Back to the drawing";
  } catch {
    button.textContent = "Could not load; try again";
  }
  button.disabled = false;
  button.focus();
}

async function savePicture(figure) {
  const picture = new Image();
  picture.src = `${figure.dataset.chart}.svg`;
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: picture.width * 2, height: picture.height * 2 });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  const name = `${figure.dataset.chart.split("/").slice(-2).join("-")}.png`;
  Object.assign(document.createElement("a"), { href: canvas.toDataURL("image/png"), download: name }).click();
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const [button, png, table] = ["[data-explore]", "[data-png]", "details"].map((name) => figure.querySelector(name));
  button.hidden = png.hidden = false;
  button.addEventListener("click", () => explore(figure, button));
  png.addEventListener("click", () => savePicture(figure));
  figure.addEventListener("keydown", (event) => {
    if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) table.open = !table.open;
  });
}
