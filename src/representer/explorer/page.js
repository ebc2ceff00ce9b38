// The page of the explorer. Texts of data enter the page through textContent only.

// -- where answers come from: a server, or the data inside this file ------------------------------------------------
const embedded = document.getElementById("data");

class Server {
  async ask(name, question = {}) {
    const response = await fetch(`ask/${name}`, {
      method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" },
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error ?? response.statusText);
    return answer;
  }
}

class Still {
  constructor(data) { this.data = data; }
  async ask(name, question = {}) {
    const data = this.data;
    if (name === "overview") return data.overview;
    if (name === "drawing") return question.anchor ? data.anchors[question.i] ?? data.drawings[question.i] : data.drawings[question.i];
    if (name === "explain") return data.reasons[question.i];
    if (name === "interval") return data.reasons[question.i].interval;
    if (name === "decode") return question.places.map((place) => data.grid.drawings[this.nearest(place)]);
    if (name === "traverse") return data.walks[question.component];
    if (name === "sample") return data.drawn;
    if (name === "tune") return data.kernel;
    throw new Error("This needs the server: representer explore model/");
  }
  nearest(place) {
    const span = [0, 1].map((a) => { const own = data_range(this.data.grid.places, a); return own[1] - own[0] || 1; });
    let best = 0, least = Infinity;
    this.data.grid.places.forEach((own, k) => {
      const d = [0, 1].reduce((sum, a) => sum + (a < own.length ? ((own[a] - place[a]) / span[a]) ** 2 : 0), 0);
      if (d < least) { least = d; best = k; }
    });
    return best;
  }
}

function data_range(rows, column) {
  let low = Infinity, high = -Infinity;
  for (const row of rows) { low = Math.min(low, row[column]); high = Math.max(high, row[column]); }
  return [low, high];
}

const still = embedded ? new Still(JSON.parse(embedded.textContent)) : null;
const source = still ?? new Server();

// -- small things ---------------------------------------------------------------------------------------------------
const $ = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(digits))) : String(value);
}

let failing;
function fail(error) {
  $("failure").textContent = error.message ?? String(error);
  $("failure").hidden = false;
  clearTimeout(failing);
  failing = setTimeout(() => { $("failure").hidden = true; }, 6000);
}

// Only the last question of a kind matters: while one is answered, at most one waits.
function latest(work) {
  let busy = false, waiting = null;
  return async function run(...args) {
    if (busy) { waiting = args; return; }
    busy = true;
    try { await work(...args); } catch (error) { fail(error); }
    busy = false;
    if (waiting) { const next = waiting; waiting = null; run(...next); }
  };
}

// -- colours --------------------------------------------------------------------------------------------------------
const CLASSES = ["#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a500", "#7b61c9", "#8c564b", "#7f8c99", "#17a2a2", "#c0392b"];
const LIGHT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const DARK = [[86, 98, 214], [64, 146, 214], [58, 186, 164], [142, 212, 96], [253, 231, 37]];
function ramp(share, STOPS = dark.matches ? DARK : LIGHT) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1), k = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[k].map((low, j) => Math.round(low + (STOPS[k + 1][j] - low) * (place - k)));
}
const rampColour = (share) => `rgb(${ramp(share).join(" ")})`;

// -- drawings of objects --------------------------------------------------------------------------------------------
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function parsedColour(name) {
  const value = css(name);
  return [1, 3, 5].map((k) => parseInt(value.slice(k, k + 2), 16));
}

function pictureCanvas(drawing, ink) {
  const [height, width] = drawing.size, bytes = bytesOf(drawing.pixels);
  const canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height), colour = parsedColour("--ink");
  bytes.forEach((value, k) => image.data.set(ink ? [...colour, value] : [value, value, value, 255], 4 * k));
  context.putImageData(image, 0, 0);
  return canvas;
}

function scaled(canvas, size) {
  const factor = size / Math.max(canvas.width, canvas.height);
  canvas.style.width = `${canvas.width * factor}px`;
  canvas.style.height = `${canvas.height * factor}px`;
  return canvas;
}

function sharp(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function curveCanvas(drawing, width, height) {
  const canvas = element("canvas", { class: "line" }), context = sharp(canvas, width, height);
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  const [low, high] = drawing.limits;
  drawing.lines.forEach((line, j) => {
    context.strokeStyle = j ? CLASSES[j % CLASSES.length] : css("--accent");
    context.lineWidth = 1.5;
    context.beginPath();
    line.forEach((value, k) => {
      const x = 2 + (width - 4) * k / Math.max(line.length - 1, 1), y = height - 2 - (height - 4) * (value - low) / (high - low);
      if (value !== null) context[k ? "lineTo" : "moveTo"](x, y);
    });
    context.stroke();
  });
  return canvas;
}

function graphCanvas(drawing, size) {
  const canvas = element("canvas", { class: "line" }), context = sharp(canvas, size, size), n = drawing.labels.length;
  canvas.style.width = canvas.style.height = `${size}px`;
  const at = (k) => [size / 2 + (size / 2 - 10) * Math.cos(2 * Math.PI * k / n), size / 2 + (size / 2 - 10) * Math.sin(2 * Math.PI * k / n)];
  context.strokeStyle = css("--soft");
  for (const [u, v] of drawing.edges) { context.beginPath(); context.moveTo(...at(u)); context.lineTo(...at(v)); context.stroke(); }
  context.textAlign = "center"; context.textBaseline = "middle"; context.font = "10px system-ui";
  drawing.labels.forEach((label, k) => {
    const [x, y] = at(k);
    context.fillStyle = css("--card"); context.beginPath(); context.arc(x, y, 7, 0, 7); context.fill(); context.stroke();
    context.fillStyle = css("--ink"); context.fillText(label.slice(0, 3), x, y);
  });
  return canvas;
}

function rowTable(drawing, most) {
  const table = element("table");
  for (const [name, value] of drawing.cells.slice(0, most)) {
    table.append(element("tr", {}, element("td", { text: name }), element("td", { text: value })));
  }
  const left = drawing.cells.length - most + (drawing.left_out ?? 0);
  if (left > 0) table.append(element("tr", {}, element("td", { text: `… ${left} more` }), element("td")));
  return table;
}

function drawn(drawing, size = 160, { small = false } = {}) {
  const box = element("div", { class: "drawing" });
  if (!drawing) return box;
  if (drawing.kind === "picture") box.append(scaled(pictureCanvas(drawing, drawing.ink), size));
  else if (drawing.kind === "curve") box.append(curveCanvas(drawing, small ? size : 1.6 * size, small ? size * 0.6 : size * 0.8));
  else if (drawing.kind === "graph") box.append(graphCanvas(drawing, size));
  else if (drawing.kind === "molecule") {
    const image = element("img", { class: "molecule", alt: drawing.text, width: size, height: size });
    if (drawing.address.startsWith("data:image/svg+xml;base64,")) image.src = drawing.address;
    box.append(image);
    if (!small) box.append(element("div", { class: "text", text: drawing.text }));
  } else if (drawing.kind === "row") {
    if (drawing.picture) box.append(drawn(drawing.picture, size, { small: true }));
    if (!small || !drawing.picture) box.append(rowTable(drawing, small ? 3 : size > 120 ? 14 : 6));
  } else box.append(element("div", { class: "text", text: small ? drawing.text.slice(0, 40) : drawing.text }));
  return box;
}

const known = new Map();
function drawingOf(i, anchor = false) {
  const key = `${anchor ? "a" : "s"}${i}`;
  if (!known.has(key)) {
    if (known.size > 3000) known.clear();
    known.set(key, source.ask("drawing", { i, anchor }));
  }
  return known.get(key);
}

// -- the map --------------------------------------------------------------------------------------------------------
let overview, codes, axes = [0, 1], box, view = { x: 0.5, y: 0.5, zoom: 1 }, size = [1, 1], grid;
let colour = { values: null, palette: [], of: null }, sprites = new Map();
let chosen = null, place = null, lassoed = null, outline = null, drawnPlaces = [], walls = null, thumbs = null, startCode = null;
const map = $("map");
const MARGIN = 26;

function fitBox() {
  box = axes.map((a) => {
    const [low, high] = data_range(codes, a), gap = (high - low) * 0.03 || 1;
    return [low - gap, high + gap];
  });
  buildGrid();
}
const unit = (code) => axes.map((a, k) => ((a < code.length ? code[a] : 0) - box[k][0]) / (box[k][1] - box[k][0]));
function toScreen(code) {
  const [u, v] = unit(code);
  return [size[0] / 2 + (u - view.x) * view.zoom * (size[0] - 2 * MARGIN), size[1] / 2 - (v - view.y) * view.zoom * (size[1] - 2 * MARGIN)];
}
function toCode(x, y) {
  const u = (x - size[0] / 2) / (view.zoom * (size[0] - 2 * MARGIN)) + view.x, v = (size[1] / 2 - y) / (view.zoom * (size[1] - 2 * MARGIN)) + view.y;
  const code = (startCode ?? meanCode()).slice();
  [u, v].forEach((own, k) => { if (axes[k] < code.length) code[axes[k]] = box[k][0] + own * (box[k][1] - box[k][0]); });
  return code;
}
function meanCode() {
  const mean = new Array(codes[0].length).fill(0);
  for (const code of codes) code.forEach((value, k) => { mean[k] += value / codes.length; });
  return mean;
}

// Points by cells of the unit square, so that the nearest one is found among few.
const CELLS = 80;
function buildGrid() {
  grid = new Map();
  codes.forEach((code, i) => {
    const [u, v] = unit(code), key = Math.floor(u * CELLS) * 1000 + Math.floor(v * CELLS);
    (grid.get(key) ?? grid.set(key, []).get(key)).push(i);
  });
}
function pointAt(x, y, radius) {
  const wide = view.zoom * (size[0] - 2 * MARGIN), high = view.zoom * (size[1] - 2 * MARGIN);
  const u = (x - size[0] / 2) / wide + view.x, v = (size[1] / 2 - y) / high + view.y;
  let best = null, least = radius * radius;
  for (let a = Math.floor((u - radius / wide) * CELLS); a <= Math.floor((u + radius / wide) * CELLS); a++) {
    for (let b = Math.floor((v - radius / high) * CELLS); b <= Math.floor((v + radius / high) * CELLS); b++) {
      for (const i of grid.get(a * 1000 + b) ?? []) {
        const [px, py] = toScreen(codes[i]), d = (px - x) ** 2 + (py - y) ** 2;
        if (d < least) { least = d; best = i; }
      }
    }
  }
  return best;
}

function setColour(name) {
  const own = overview.colours[name];
  sprites = new Map();
  if (!own) { colour = { of: () => css("--accent"), bins: null }; drawLegend(null); return; }
  if (own.names) {
    colour = { of: (i) => own.numbers[i] === null ? css("--soft") : CLASSES[own.numbers[i] % CLASSES.length] };
  } else {
    const sorted = own.numbers.filter((value) => value !== null).sort((a, b) => a - b);
    const low = sorted[Math.floor(0.01 * (sorted.length - 1))], high = sorted[Math.ceil(0.99 * (sorted.length - 1))];
    const table = Array.from({ length: 48 }, (_, k) => rampColour(k / 47));
    colour = { of: (i) => own.numbers[i] === null ? css("--soft") : table[Math.round(47 * Math.min(Math.max((own.numbers[i] - low) / (high - low || 1), 0), 1))], low, high };
  }
  drawLegend(own);
}
function drawLegend(own) {
  const legend = $("legend");
  legend.replaceChildren();
  if (!own) { legend.hidden = true; return; }
  legend.hidden = false;
  if (own.names) {
    own.names.slice(0, 24).forEach((name, k) => {
      const dot = element("i");
      dot.style.background = CLASSES[k % CLASSES.length];
      legend.append(element("span", {}, dot, element("span", { text: name.slice(0, 24) })));
    });
    return;
  }
  const bar = element("canvas", { width: 96, height: 1 }), context = bar.getContext("2d");
  for (let k = 0; k < 96; k++) { context.fillStyle = rampColour(k / 95); context.fillRect(k, 0, 1, 1); }
  legend.append(element("span", { text: own.words }), element("span", { text: number(colour.low, 3) }), bar, element("span", { text: number(colour.high, 3) }));
}

function sprite(fill, radius) {
  const key = `${fill} ${radius}`;
  if (!sprites.has(key)) {
    const side = Math.ceil(2 * radius + 3), ratio = devicePixelRatio || 1, canvas = element("canvas", { width: side * ratio, height: side * ratio });
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.beginPath(); context.arc(side / 2, side / 2, radius, 0, 7);
    context.fillStyle = fill; context.globalAlpha = codes.length > 3000 ? 0.75 : 0.9; context.fill();
    context.globalAlpha = 1; context.lineWidth = 0.6; context.strokeStyle = css("--card"); context.stroke();
    sprites.set(key, [canvas, side]);
  }
  return sprites.get(key);
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; paint(); });
}
function paint() {
  const area = map.getBoundingClientRect();
  if (!area.width || !codes) return;
  size = [area.width, area.height];
  const context = sharp(map, ...size);
  paintAxes(context);
  if (walls) paintWalls(context);
  const radius = Math.min(7, Math.max(2.2, 6.3 - Math.log10(codes.length)) * Math.sqrt(Math.sqrt(view.zoom)));
  const inside = lassoed ? new Set(lassoed) : null;
  codes.forEach((code, i) => {
    const [x, y] = toScreen(code);
    if (x < -9 || y < -9 || x > size[0] + 9 || y > size[1] + 9) return;
    const [image, side] = sprite(colour.of(i), radius);
    context.globalAlpha = inside && !inside.has(i) ? 0.18 : thumbs ? 0.5 : 1;
    context.drawImage(image, x - side / 2, y - side / 2, side, side);
  });
  context.globalAlpha = 1;
  if (thumbs) paintThumbs(context);
  for (const own of drawnPlaces) star(context, ...toScreen(own));
  if (chosen !== null) ring(context, ...toScreen(codes[chosen]), radius + 4, css("--ink"));
  if (place) cross(context, ...toScreen(place));
  if (outline) {
    context.beginPath();
    outline.forEach(([x, y], k) => context[k ? "lineTo" : "moveTo"](x, y));
    context.closePath();
    context.strokeStyle = css("--accent"); context.lineWidth = 1.5; context.setLineDash([5, 4]); context.stroke(); context.setLineDash([]);
    context.globalAlpha = 0.08; context.fillStyle = css("--accent"); context.fill(); context.globalAlpha = 1;
  }
}
function paintAxes(context) {
  context.strokeStyle = css("--line"); context.lineWidth = 1;
  context.fillStyle = css("--soft"); context.font = "11px system-ui"; context.textAlign = "right"; context.textBaseline = "alphabetic";
  const zero = toScreen(codes[0].map(() => 0));
  context.beginPath();
  context.moveTo(zero[0], 0); context.lineTo(zero[0], size[1]); context.moveTo(0, zero[1]); context.lineTo(size[0], zero[1]);
  context.stroke();
  context.fillText(axisName(axes[0]), size[0] - 10, size[1] - 10);
  context.textAlign = "left";
  if (codes[0].length > 1) context.fillText(axisName(axes[1]), 10, 18);
}
const axisName = (a) => `component ${a + 1}`;
function ring(context, x, y, radius, stroke) {
  context.beginPath(); context.arc(x, y, radius, 0, 7); context.lineWidth = 2.5; context.strokeStyle = stroke; context.stroke();
}
function cross(context, x, y) {
  ring(context, x, y, 9, css("--minus"));
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) { context.moveTo(x + 5 * dx, y + 5 * dy); context.lineTo(x + 14 * dx, y + 14 * dy); }
  context.stroke();
}
function star(context, x, y) {
  context.save(); context.translate(x, y); context.rotate(Math.PI / 4);
  context.fillStyle = css("--minus"); context.strokeStyle = css("--card"); context.lineWidth = 1;
  context.fillRect(-4, -4, 8, 8); context.strokeRect(-4, -4, 8, 8); context.restore();
}
function paintThumbs(context) {
  const side = Math.min(52, (size[0] < 500 ? 14 : 24) + 7 * Math.log2(1 + view.zoom)), taken = new Map();
  const isFree = (x, y) => {
    for (const a of [-1, 0, 1]) for (const b of [-1, 0, 1]) {
      const own = taken.get(`${Math.floor(x / side) + a} ${Math.floor(y / side) + b}`);
      if (own && Math.max(Math.abs(own[0] - x), Math.abs(own[1] - y)) < side) return false;
    }
    return true;
  };
  overview.thumbnails.rows.forEach((i, k) => {
    const [x, y] = toScreen(codes[i]);
    if (x < -side || y < -side || x > size[0] + side || y > size[1] + side || !isFree(x, y)) return;
    taken.set(`${Math.floor(x / side)} ${Math.floor(y / side)}`, [x, y]);
    const image = thumbs[k] ??= tinted(overview.thumbnails.pictures[k], overview.thumbnails.ink);
    const w = side * 0.92 * image.width / Math.max(image.width, image.height), h = side * 0.92 * image.height / Math.max(image.width, image.height);
    context.imageSmoothingEnabled = false;
    context.fillStyle = css("--card"); context.fillRect(x - w / 2, y - h / 2, w, h);
    context.drawImage(image, x - w / 2, y - h / 2, w, h);
    context.strokeStyle = colour.of(i); context.lineWidth = 2; context.strokeRect(x - w / 2, y - h / 2, w, h);
  });
  context.imageSmoothingEnabled = true;
}
const tinted = (picture, ink) => pictureCanvas(picture, ink);
function paintWalls(context) {
  const n = walls.size, [a, b] = [toScreen(walls.places[0]), toScreen(walls.places[n + 1])];
  const w = Math.abs(b[0] - a[0]), h = Math.abs(b[1] - a[1]), side = Math.min(w, h) * 0.94;
  context.globalAlpha = 0.65;
  context.imageSmoothingEnabled = overview.kind !== "picture";
  walls.places.forEach((own, k) => {
    const [x, y] = toScreen(own), drawing = walls.drawings[k];
    if (x < -w || y < -h || x > size[0] + w || y > size[1] + h) return;
    const image = walls.images[k] ??= wallImage(drawing, side);
    if (!image) {
      context.fillStyle = css("--ink"); context.font = "10px ui-monospace, monospace"; context.textAlign = "center";
      context.fillText((drawing.text ?? "").slice(0, Math.max(3, Math.floor(w / 6.5))), x, y);
    } else if (image.complete !== false) {
      context.filter = dark.matches && image.tagName === "IMG" ? "invert(1) hue-rotate(180deg)" : "none";
      context.drawImage(image, x - side / 2, y - side / 2, side, side);
    }
  });
  context.globalAlpha = 1;
  context.filter = "none";
  context.imageSmoothingEnabled = true;
}
function wallImage(drawing, side) {
  if (drawing.kind === "picture") return pictureCanvas(drawing, drawing.ink);
  if (drawing.kind === "curve") return curveCanvas(drawing, side, side);
  if (drawing.kind === "graph") return graphCanvas(drawing, Math.max(side, 60));
  const address = drawing.address ?? drawing.picture?.address;
  if (!address?.startsWith("data:image/svg+xml;base64,")) return null;
  const image = new Image();
  image.addEventListener("load", redraw);
  image.src = address;
  return image;
}

// -- pointing at the map --------------------------------------------------------------------------------------------
const pointers = new Map();
let gesture = null;
const at = (event) => { const area = map.getBoundingClientRect(); return [event.clientX - area.left, event.clientY - area.top]; };
const nearMarker = (x, y) => place && Math.hypot(toScreen(place)[0] - x, toScreen(place)[1] - y) < 16;

map.addEventListener("pointerdown", (event) => {
  map.setPointerCapture(event.pointerId);
  const [x, y] = at(event);
  pointers.set(event.pointerId, [x, y]);
  hideTip();
  if (pointers.size === 2) { gesture = { kind: "pinch", before: spread() }; return; }
  const lasso = event.shiftKey || $("lasso").getAttribute("aria-pressed") === "true";
  gesture = lasso ? { kind: "lasso" } : { kind: nearMarker(x, y) ? "marker" : "press", x, y, from: { ...view } };
  if (lasso) outline = [[x, y]];
});
map.addEventListener("pointermove", (event) => {
  const [x, y] = at(event);
  if (pointers.has(event.pointerId)) pointers.set(event.pointerId, [x, y]);
  if (!gesture) { hover(x, y); return; }
  if (gesture.kind === "pinch" && pointers.size === 2) {
    const now = spread();
    zoomAt(...now.middle, now.distance / gesture.before.distance);
    view.x -= (now.middle[0] - gesture.before.middle[0]) / (view.zoom * (size[0] - 2 * MARGIN));
    view.y += (now.middle[1] - gesture.before.middle[1]) / (view.zoom * (size[1] - 2 * MARGIN));
    gesture.before = now;
  } else if (gesture.kind === "lasso") outline.push([x, y]);
  else if (gesture.kind === "marker") moveTo(toCode(x, y));
  else if (gesture.kind === "pan" || Math.hypot(x - gesture.x, y - gesture.y) > 5) {
    gesture.kind = "pan";
    view.x = gesture.from.x - (x - gesture.x) / (view.zoom * (size[0] - 2 * MARGIN));
    view.y = gesture.from.y + (y - gesture.y) / (view.zoom * (size[1] - 2 * MARGIN));
  }
  redraw();
});
function release(event) {
  const [x, y] = at(event);
  pointers.delete(event.pointerId);
  const ended = gesture;
  gesture = pointers.size ? { kind: "none" } : null;
  if (ended?.kind === "press" && event.type === "pointerup") {
    const i = pointAt(x, y, event.pointerType === "touch" ? 16 : 9);
    if (i !== null) choose(i);
    else { startCode = null; moveTo(toCode(x, y)); }
  }
  if (ended?.kind === "lasso") endLasso();
  redraw();
}
map.addEventListener("pointerup", release);
map.addEventListener("pointercancel", release);
map.addEventListener("pointerleave", hideTip);
map.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomAt(...at(event), Math.exp(-event.deltaY * 0.0015));
  redraw();
}, { passive: false });
map.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) {
    event.preventDefault();
    const [x, y] = place ? toScreen(place) : [size[0] / 2, size[1] / 2];
    moveTo(toCode(x + 14 * step[0], y + 14 * step[1]));
  } else if (event.key === "+" || event.key === "-") { zoomAt(size[0] / 2, size[1] / 2, event.key === "+" ? 1.3 : 1 / 1.3); redraw(); }
});
function spread() {
  const [a, b] = [...pointers.values()];
  return { distance: Math.hypot(a[0] - b[0], a[1] - b[1]) || 1, middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
}
function zoomAt(x, y, factor) {
  const zoom = Math.min(Math.max(view.zoom * factor, 0.5), 200), wide = size[0] - 2 * MARGIN, high = size[1] - 2 * MARGIN;
  view.x += (x - size[0] / 2) / wide * (1 / view.zoom - 1 / zoom);
  view.y -= (y - size[1] / 2) / high * (1 / view.zoom - 1 / zoom);
  view.zoom = zoom;
}

let hovered = null;
async function hover(x, y) {
  const i = pointAt(x, y, 9);
  map.classList.toggle("over", i !== null);
  if (i === hovered) return;
  hovered = i;
  if (i === null) { hideTip(); return; }
  try {
    const drawing = await drawingOf(i);
    if (hovered !== i) return;
    const tip = $("tip"), [px, py] = toScreen(codes[i]);
    tip.replaceChildren(drawn(drawing, 110), element("div", { class: "soft", text: caption(i) }));
    tip.hidden = false;
    tip.style.left = `${px + 18 + tip.offsetWidth > size[0] ? Math.max(4, px - tip.offsetWidth - 18) : px + 18}px`;
    tip.style.top = `${Math.min(Math.max(4, py - 30), Math.max(4, size[1] - tip.offsetHeight - 6))}px`;
  } catch (error) { fail(error); }
}
function hideTip() { hovered = null; $("tip").hidden = true; }
function valueOf(name, i) {
  const own = overview.colours[name];
  return own.numbers[i] === null ? "–" : own.names ? own.names[own.numbers[i]] : number(own.numbers[i]);
}
const caption = (i) => [`sample ${rowNumber(i)}`, ...Object.keys(overview.colours).map((name) => `${name} ${valueOf(name, i)}`)].join(" · ");
const rowNumber = (i) => still ? still.data.rows[i] : i;

// -- a place, decoded -----------------------------------------------------------------------------------------------
const decodeThere = latest(async (code) => {
  const [drawing] = await source.ask("decode", { places: [code] });
  if (place) showPlace(drawing);
});
function moveTo(code) {
  place = code; chosen = null;
  decodeThere(code);
  redraw();
}
function showPlace(drawing) {
  const panel = $("panel");
  if (panel.dataset.shows !== "place") {
    panel.dataset.shows = "place";
    panel.replaceChildren(element("h2", { text: "At this place" }), element("div", { class: "figure", id: "decoded" }),
      element("p", { class: "soft", text: `${overview.map.back}${still ? ", at the nearest place of a grid" : ""}. Drag the mark, or use the arrow keys.` }),
      element("h3", { text: "Walk along a component" }), element("div", { id: "components" }), element("div", { class: "strip", id: "walk" }));
  }
  $("decoded").replaceChildren(drawn(drawing, 190));
  const rows = place.slice(0, 8).map((value, a) => {
    const [low, high] = data_range(codes, a);
    const slider = element("input", { type: "range", min: low, max: high, step: (high - low) / 200 || 1, value, "aria-label": axisName(a),
      oninput: () => { startCode = place.slice(); startCode[a] = Number(slider.value); moveTo(startCode.slice()); } });
    const button = element("button", { text: "▸", title: `Show objects along component ${a + 1}`, onclick: () => walk(a) });
    return element("div", { class: "component" }, element("span", { text: a + 1 }), slider, button);
  });
  const focused = document.activeElement?.closest?.(".component");
  if (!focused || !$("components").contains(focused)) $("components").replaceChildren(...rows);
}
const walk = latest(async (component) => {
  const answer = await source.ask("traverse", { component, start: place });
  $("walk")?.replaceChildren(...answer.drawings.map((drawing, k) => element("button", {
    title: `component ${component + 1}: ${number(answer.places[k][component], 3)}`, onclick: () => moveTo(answer.places[k].slice()),
  }, drawn(drawing, 40, { small: true }))));
});

// -- a sample, explained --------------------------------------------------------------------------------------------
let intervalWanted = Boolean(still);
const choose = latest(async (i) => {
  chosen = i; place = null; startCode = codes[i].slice();
  redraw();
  const [drawing, answer] = await Promise.all([drawingOf(i), source.ask("explain", { i })]);
  if (chosen !== i) return;
  const panel = $("panel");
  panel.dataset.shows = "sample";
  const facts = [["colours", null]].slice(1);
  for (const name of Object.keys(overview.colours)) if (name !== "support") facts.push([name, valueOf(name, i)]);
  panel.replaceChildren(
    element("h2", { text: `Sample ${rowNumber(i)}` }), element("div", { class: "figure" }, drawn(drawing, 170)), factList(facts),
    element("div", { id: "reasons" }), editor(i, answer), element("p", {}, element("button", { text: "Walk from here", onclick: () => moveTo(codes[i].slice()) })),
  );
  showReasons($("reasons"), answer, i);
});
function factList(facts) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of facts) list.append(element("dt", { text: name }), element("dd", { text: value }));
  return list;
}
function showReasons(where, answer, i, before = null) {
  const parts = [];
  const facts = [];
  if (answer.prediction !== undefined) {
    const moved = before !== null && before.prediction !== answer.prediction;
    facts.push(["prediction", number(answer.prediction) + (moved ? `  (was ${number(before.prediction)})` : "")]);
  }
  if (answer.std !== null && answer.std !== undefined) facts.push(["± std", number(answer.std, 3)]);
  if (answer.support !== null && answer.support !== undefined) facts.push(["support", number(answer.support, 2)]);
  if (facts.length) parts.push(factList(facts));
  if (overview.interval && i !== null) parts.push(intervalOf(i));
  if (answer.probabilities) parts.push(element("h3", { text: "Probabilities" }), probabilityBars(answer.probabilities));
  if (answer.silent) parts.push(element("p", { class: "soft", text: answer.silent }));
  if (answer.terms) {
    const of = overview.supervised ? answer.output === null ? "the prediction" : `the value of “${answer.output}”` : "the first code";
    parts.push(element("h3", { text: `What makes ${of}: ${number(answer.value)} = ${number(answer.baseline)} + …` }), termBars(answer));
  }
  if (answer.neighbours?.length) parts.push(element("h3", { text: "Nearest to the kernel" }), neighbourStrip(answer.neighbours));
  where.replaceChildren(...parts);
}
function intervalOf(i) {
  const line = element("p", {});
  const fetchIt = async () => {
    intervalWanted = true;
    line.replaceChildren(element("span", { class: "soft", text: "90 % interval: computing …" }));
    try {
      const answer = await source.ask("interval", { i });
      const text = answer.ends ? `[${answer.ends.map((end, k) => end === null ? (k ? "∞" : "−∞") : number(end)).join(", ")}]` : answer.classes.join(", ") || "none";
      line.replaceChildren(element("span", { class: "soft", text: answer.ends ? "90 % interval " : "not excluded at 90 %: " }), element("b", { text }));
    } catch (error) { line.replaceChildren(element("span", { class: "soft", text: error.message })); }
  };
  if (intervalWanted) fetchIt();
  else line.append(element("button", { text: "90 % interval", title: "The first one may take a while", onclick: fetchIt }));
  return line;
}
function probabilityBars(p) {
  const bars = element("div", { class: "bars" });
  const order = p.map((value, k) => [value, k]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  for (const [value, k] of order) {
    const bar = element("div", { class: "bar" });
    bar.style.width = `${100 * value}%`;
    bar.style.background = CLASSES[k % CLASSES.length];
    bars.append(element("span", { text: overview.classes[k] }), element("div", { class: "track" }, bar), element("span", { text: value.toFixed(3) }));
  }
  return bars;
}
function termBars(answer) {
  const bars = element("div", { class: "bars" });
  const largest = Math.max(...answer.terms.map((term) => Math.abs(term.value)), Math.abs(answer.rest), 1e-300);
  const negative = answer.terms.some((term) => term.value < 0) || answer.rest < 0;
  const add = (who, value) => {
    const bar = element("div", { class: value < 0 ? "bar minus" : "bar" }), share = Math.abs(value) / largest;
    bar.style.width = `${(negative ? 50 : 100) * share}%`;
    bar.style.left = negative ? `${value < 0 ? 50 * (1 - share) : 50}%` : "0";
    bars.append(who, element("div", { class: "track" }, bar), element("span", { text: (value < 0 ? "−" : "+") + number(Math.abs(value), 3) }));
  };
  for (const term of answer.terms) {
    const words = `${answer.kind.slice(0, -1)} ${term.i}`;
    const who = element("button", { class: "who", title: words });
    if (answer.kind === "features") who.textContent = words;
    else {
      who.append(element("span", { class: "soft", text: term.label === null ? words : overview.kind === "row" ? `${words} (${term.label})` : term.label }));
      if (overview.kind !== "row") drawingOf(term.i, true).then((drawing) => who.prepend(drawn(drawing, drawing.kind === "molecule" ? 60 : 34, { small: true }))).catch(fail);
      if (overview.shared && !still) who.addEventListener("click", () => choose(term.i));
    }
    add(who, term.value);
  }
  add(element("span", { class: "soft", text: `${answer.others} others` }), answer.rest);
  return bars;
}
const brief = (text) => text !== "" && Number.isFinite(Number(text)) ? number(Number(text), 3) : text.slice(0, 16);
function neighbourTable(neighbours) {
  const box = element("div", { class: "scroll" });
  Promise.all(neighbours.map((i) => drawingOf(i, true))).then((drawings) => {
    const table = element("table", {}, element("tr", {}, element("th"), ...neighbours.map((i) => element("th", { text: String(i) }))));
    drawings[0].cells.slice(0, 20).forEach(([name], k) => table.append(
      element("tr", {}, element("td", { text: name }), ...drawings.map((own) => element("td", { text: brief(own.cells[k]?.[1] ?? "") })))));
    box.append(table);
  }).catch(fail);
  return box;
}
function neighbourStrip(neighbours) {
  if (overview.kind === "row") return neighbourTable(neighbours);
  const strip = element("div", { class: "strip" });
  for (const i of neighbours) {
    const one = element("button", { title: `sample ${i}`, onclick: () => { if (overview.shared && !still) choose(i); } });
    drawingOf(i, true).then((drawing) => one.append(drawn(drawing, drawing.kind === "molecule" ? 90 : 52, { small: true }), element("span", { text: String(i) }))).catch(fail);
    strip.append(one);
  }
  return strip;
}

// -- an input, edited -----------------------------------------------------------------------------------------------
function editor(i, answer) {
  if (!answer.edit || still) return element("div");
  const edit = answer.edit, where = element("div"), details = element("details", {}, element("summary", { text: "Edit the input and see the prediction move" }), where);
  const send = latest(async (edited) => {
    try {
      const said = await source.ask("ask", { edited, like: i });
      message.textContent = "";
      drawnPlaces = [said.place];
      if (chosen === i) showReasons($("reasons"), said, null, answer);
      if (preview.isConnected && edit.kind !== "picture") preview.replaceChildren(drawn(said.drawing, 120));
      redraw();
    } catch (error) { message.textContent = error.message; }
  });
  const message = element("p", { class: "error" }), preview = element("div", { class: "figure" });
  if (edit.kind === "text") {
    const field = element("input", { type: "text", value: edit.text, "aria-label": "input", spellcheck: "false", oninput: () => send(field.value) });
    where.append(field);
  } else if (edit.kind === "picture") where.append(painter(edit, send));
  else if (edit.kind === "row") {
    const values = edit.cells.map(([, value]) => value), form = element("div", { class: "form" });
    edit.cells.forEach(([name, value], k) => {
      const numeric = typeof value === "number";
      const field = element("input", { type: numeric ? "number" : "text", step: "any", value: value === null ? "" : numeric ? number(value, 6) : value,
        oninput: () => { values[k] = field.value === "" ? null : numeric ? Number(field.value) : field.value; send(values); } });
      form.append(element("label", {}, element("span", { text: name }), field));
    });
    where.append(form);
  } else where.append(painter({ ...edit, shape: [1, edit.values.length] }, send));
  where.append(preview, message);
  return details;
}
function painter(edit, send) {
  const [height, width] = edit.shape, [low, high] = edit.limits, values = edit.values.slice();
  const canvas = element("canvas", { width, height, class: "paint", "aria-label": "Paint: drag to add, with Shift or the right button to remove" });
  scaled(canvas, 190);
  if (height === 1) canvas.style.height = "40px";
  canvas.style.imageRendering = "pixelated";
  const show = () => {
    const context = canvas.getContext("2d"), image = context.createImageData(width, height), colour = parsedColour("--ink");
    values.forEach((value, k) => image.data.set([...colour, Math.round(255 * (value - low) / (high - low))], 4 * k));
    context.putImageData(image, 0, 0);
  };
  const stroke = (event) => {
    const area = canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - area.left) / area.width * width), y = Math.floor((event.clientY - area.top) / area.height * height);
    if (x < 0 || y < 0 || x >= width || y >= height) return;
    values[y * width + x] = event.shiftKey || event.buttons === 2 ? low : high;
    show(); send(values);
  };
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); stroke(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) stroke(event); });
  show();
  return element("div", {}, canvas, element("p", { class: "soft", text: "Drag to add, with Shift to remove." }));
}

// -- many samples ---------------------------------------------------------------------------------------------------
function endLasso() {
  const polygon = outline;
  lassoed = polygon.length < 3 ? null : codes.map((code, i) => i).filter((i) => isInside(toScreen(codes[i]), polygon));
  outline = null;
  $("lasso").setAttribute("aria-pressed", "false");
  if (!lassoed?.length) { lassoed = null; return; }
  chosen = null; place = null;
  showLassoed();
}
function isInside([x, y], polygon) {
  let inside = false;
  for (let k = 0, j = polygon.length - 1; k < polygon.length; j = k++) {
    const [ax, ay] = polygon[k], [bx, by] = polygon[j];
    if (ay > y !== by > y && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
function showLassoed() {
  const panel = $("panel"), facts = [["samples", `${lassoed.length} of ${codes.length}`]], extra = [];
  panel.dataset.shows = "lasso";
  for (const [name, own] of Object.entries(overview.colours)) {
    const values = lassoed.map((i) => own.numbers[i]).filter((value) => value !== null);
    if (own.names) {
      const counts = own.names.map((label, k) => [label, values.filter((value) => value === k).length, k]).filter((row) => row[1]).sort((a, b) => b[1] - a[1]);
      extra.push(element("h3", { text: name }), countBars(counts, values.length));
    } else if (values.length) {
      const mean = values.reduce((a, b) => a + b, 0) / values.length;
      const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length);
      facts.push([name, `${number(mean, 3)} ± ${number(deviation, 2)}  (${number(Math.min(...values), 3)} … ${number(Math.max(...values), 3)})`]);
    }
  }
  const strip = element("div", { class: "strip" });
  for (const i of lassoed.slice(0, 24)) {
    const one = element("button", { title: caption(i), onclick: () => choose(i) });
    drawingOf(i).then((drawing) => one.append(drawn(drawing, 44, { small: true }))).catch(fail);
    strip.append(one);
  }
  panel.replaceChildren(element("h2", { text: "Selected samples" }), factList(facts), ...extra, element("h3", { text: "The first of them" }), strip,
    element("p", {}, element("button", { text: "Export CSV", id: "csv", onclick: exportCsv }), " ", element("button", { text: "Clear", onclick: () => { lassoed = null; hints(); redraw(); } })));
}
function countBars(counts, total) {
  const bars = element("div", { class: "bars" });
  for (const [label, count, k] of counts.slice(0, 12)) {
    const bar = element("div", { class: "bar" });
    bar.style.width = `${100 * count / total}%`;
    bar.style.background = CLASSES[k % CLASSES.length];
    bars.append(element("span", { text: label }), element("div", { class: "track" }, bar), element("span", { text: String(count) }));
  }
  return bars;
}
function csvOf(rows) {
  const names = Object.keys(overview.colours);
  const cell = (value) => {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text; // no formula of a spreadsheet
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const table = rows.map((i) => [rowNumber(i), ...codes[i], ...names.map((name) => {
    const own = overview.colours[name];
    return own.names && own.numbers[i] !== null ? own.names[own.numbers[i]] : own.numbers[i];
  })]);
  return [["sample", ...codes[0].map((_, a) => axisName(a)), ...names], ...table].map((row) => row.map(cell).join(",")).join("\r\n");
}
function exportCsv() {
  const address = URL.createObjectURL(new Blob([csvOf(lassoed)], { type: "text/csv" }));
  const link = element("a", { href: address, download: "selected.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// -- tools ----------------------------------------------------------------------------------------------------------
let seed = 0;
const sampleMore = latest(async () => {
  const answer = await source.ask("sample", { n: 24, seed: seed++ });
  drawnPlaces = answer.places; chosen = null; place = null;
  const strip = element("div", { class: "strip" });
  answer.drawings.forEach((drawing, k) => strip.append(element("button", { title: "Go to its place", onclick: () => moveTo(answer.places[k].slice()) }, drawn(drawing, drawing.kind === "molecule" ? 90 : 60, { small: true }))));
  $("panel").dataset.shows = "drawn";
  $("panel").replaceChildren(element("h2", { text: "Drawn from the map" }), element("p", { class: "soft", text: `Places from the density of the samples, and ${overview.map.back}.` }), strip);
  redraw();
});
const decodeAll = latest(async (wanted) => {
  if (!wanted) { walls = null; redraw(); return; }
  const n = still ? Math.sqrt(still.data.grid.places.length) : size[0] < 500 || !["picture", "curve"].includes(overview.kind) ? 9 : 15;
  const places = still ? still.data.grid.places : gridPlaces(n);
  const drawings = still ? still.data.grid.drawings : await source.ask("decode", { places });
  walls = { size: n, places, drawings, images: [] };
  redraw();
});
function gridPlaces(n) {
  const found = [], mean = meanCode();
  for (let b = 0; b < n; b++) {
    for (let a = 0; a < n; a++) {
      const code = mean.slice();
      [a, b].forEach((step, k) => { if (axes[k] < code.length) code[axes[k]] = box[k][0] + (step + 0.5) / n * (box[k][1] - box[k][0]); });
      found.push(code);
    }
  }
  return found;
}
function toggled(id, action) {
  $(id).addEventListener("click", () => {
    const on = $(id).getAttribute("aria-pressed") !== "true";
    $(id).setAttribute("aria-pressed", String(on));
    action(on);
  });
}
function hints() {
  const panel = $("panel");
  panel.dataset.shows = "hints";
  const lines = ["Point at a sample to see it.", overview.supervised ? "Click a sample: why the model says what it says; edit it there." : "Click a sample: what makes its codes.",
    "Click an empty place: what is decoded there; drag the mark.", "Drag to move, wheel or two fingers to zoom, Shift and drag to select."];
  panel.replaceChildren(element("h2", { text: `A map of ${codes.length} samples` }), element("p", { class: "soft", text: `Its axes: ${overview.map.words}.` }), element("ul", { class: "hints" }, ...lines.map((text) => element("li", { text }))));
}
function prepareTools() {
  const names = Object.keys(overview.colours);
  $("colour").append(...[...names, "none"].map((name) => element("option", { text: name, value: name })));
  for (const [id, k] of [["axis-x", 0], ["axis-y", 1]]) {
    $(id).append(...codes[0].map((_, a) => element("option", { text: a + 1, value: a })));
    $(id).value = String(Math.min(k, codes[0].length - 1));
    $(id).disabled = codes[0].length < 3 || Boolean(still);
    $(id).addEventListener("change", () => { axes[k] = Number($(id).value); walls = null; $("wallpaper").setAttribute("aria-pressed", "false"); fitBox(); redraw(); });
  }
  $("colour").addEventListener("change", () => { setColour($("colour").value); redraw(); });
  toggled("lasso", () => {});
  toggled("pictures", (on) => { thumbs = on ? [] : null; redraw(); });
  toggled("wallpaper", decodeAll);
  $("pictures").hidden = !overview.thumbnails;
  if (overview.thumbnails) $("pictures").click();
  $("draw").addEventListener("click", () => sampleMore());
  $("reset").addEventListener("click", () => { view = { x: 0.5, y: 0.5, zoom: 1 }; chosen = place = lassoed = startCode = null; drawnPlaces = []; hints(); redraw(); });
}

// -- the kernel -----------------------------------------------------------------------------------------------------
const tuned = { which: 0, factors: {}, alpha: null };
let bench = null;
const tune = latest(async () => {
  const answer = await source.ask("tune", { ...tuned });
  if (answer === null) throw new Error("This model has no scalar kernel of its samples.");
  bench = answer;
  showBench();
});
const pathError = () => {
  if (!still || tuned.alpha === null) return bench.error;
  const k = bench.alphas.reduce((best, own, j) => Math.abs(Math.log(own / tuned.alpha)) < Math.abs(Math.log(bench.alphas[best] / tuned.alpha)) ? j : best, 0);
  return bench.errors[k];
};
function showBench() {
  const alpha = tuned.alpha ?? bench.alpha;
  if (!$("sliders").childElementCount) prepareSliders();
  bench.sliders.forEach((own) => {
    const value = $("sliders").querySelector(`[data-name="${CSS.escape(own.name)}"] b`);
    if (value) value.textContent = own.low === own.high ? number(own.low) : `${number(own.low, 3)} … ${number(own.high, 3)}`;
  });
  const shown = $("sliders").querySelector('[data-name="alpha"] b');
  if (shown) shown.textContent = number(alpha, 3);
  $("code").textContent = bench.code;
  $("rows").textContent = bench.rows < bench.of ? `Computed with ${bench.rows} of ${bench.of} samples, evenly spaced.` : "";
  $("dimension").textContent = `effective dimension ${number(effective(alpha), 3)} of ${bench.rows}`;
  const judged = bench.errors !== undefined;
  $("error").textContent = judged ? `${number(pathError())}` : "";
  for (const id of ["path", "answers"]) $(id).closest(".card").hidden = !judged;
  showGram(); showSpectrum(alpha);
  if (!judged) return;
  $("error").append(element("span", { class: "soft", text: `  ${bench.measure}` }));
  showPath(alpha);
  if (bench.classes) showConfusion(); else showScatter();
}
const effective = (alpha) => bench.spectrum.reduce((sum, value) => sum + value / (value + alpha), 0);
function prepareSliders() {
  const parts = [];
  if (bench.kernels.length > 1 && !still) {
    const choice = element("select", { "aria-label": "kernel of the stack", onchange: () => { tuned.which = Number(choice.value); tuned.factors = {}; tuned.alpha = null; $("sliders").replaceChildren(); tune(); } },
      ...bench.kernels.map((words, k) => element("option", { text: words, value: k })));
    choice.value = String(bench.which);
    parts.push(choice);
  }
  const slider = (name, low, high, value, action) => {
    const input = element("input", { type: "range", min: low, max: high, step: (high - low) / 160, value, "aria-label": name, oninput: () => action(Number(input.value)) });
    return element("div", { class: "slider", "data-name": name }, element("span", { text: name.replaceAll("__", " ") }), element("b"), input);
  };
  if (!still) bench.sliders.forEach((own) => parts.push(slider(own.name, -5, 5, Math.log2(own.factor), (value) => { tuned.factors[own.name] = 2 ** value; tune(); })));
  if (bench.errors) parts.push(slider("alpha", -5, 5, Math.log10(bench.alpha / bench.fitted_alpha), (value) => { tuned.alpha = bench.fitted_alpha * 10 ** value; if (still) showBench(); else tune(); }));
  if (!still && parts.length) parts.push(element("button", { text: "As fitted", onclick: () => { tuned.factors = {}; tuned.alpha = null; $("sliders").replaceChildren(); tune(); } }));
  $("sliders").replaceChildren(...parts);
}
function showGram() {
  const canvas = $("gram"), [n] = bench.gram.size, bytes = bytesOf(bench.gram.pixels);
  canvas.width = canvas.height = n;
  const context = canvas.getContext("2d"), image = context.createImageData(n, n);
  const table = Array.from({ length: 256 }, (_, k) => ramp(k / 255, LIGHT));
  bytes.forEach((value, k) => image.data.set([...table[value], 255], 4 * k));
  context.putImageData(image, 0, 0);
}
$("gram").addEventListener("pointermove", async (event) => {
  if (!bench) return;
  const area = event.target.getBoundingClientRect(), [n] = bench.gram.size;
  const [a, b] = [event.clientY - area.top, event.clientX - area.left].map((own, k) => Math.min(n - 1, Math.max(0, Math.floor(own / (k ? area.width : area.height) * n))));
  const value = bench.gram.low + bytesOf(bench.gram.pixels)[a * n + b] / 255 * (bench.gram.high - bench.gram.low);
  const rows = [a, b].map((k) => bench.order[k]);
  try {
    const drawings = await Promise.all(rows.map((i) => still ? still.data.drawings[still.data.rows.indexOf(i)] : drawingOf(i)));
    $("pair").replaceChildren(drawn(drawings[0], 64, { small: true }), drawn(drawings[1], 64, { small: true }), element("span", { text: `k(${rows[0]}, ${rows[1]}) ≈ ${number(value, 3)}` }));
  } catch (error) { fail(error); }
});

function plot(id, xs, ys, { logX = false, logY = false, equal = false } = {}) {
  const canvas = $(id), area = canvas.getBoundingClientRect(), context = sharp(canvas, area.width, area.height);
  const fx = logX ? Math.log10 : (v) => v, fy = logY ? Math.log10 : (v) => v;
  const ends = (values, f) => { const own = values.map(f).filter(Number.isFinite); const low = Math.min(...own), high = Math.max(...own); return high > low ? [low, high] : [low - 0.5, high + 0.5]; };
  let [x0, x1] = ends(xs, fx), [y0, y1] = ends(ys, fy);
  if (equal) { x0 = y0 = Math.min(x0, y0); x1 = y1 = Math.max(x1, y1); }
  const L = 50, B = 26, R = 10, T = 8, w = area.width - L - R, h = area.height - T - B;
  const X = (v) => L + w * (fx(v) - x0) / (x1 - x0), Y = (v) => T + h * (1 - (fy(v) - y0) / (y1 - y0));
  context.font = "11px system-ui"; context.fillStyle = css("--soft"); context.strokeStyle = css("--line"); context.lineWidth = 1;
  for (let k = 0; k <= 4; k++) {
    const vy = y0 + (y1 - y0) * k / 4, vx = x0 + (x1 - x0) * k / 4, y = T + h * (1 - k / 4);
    context.beginPath(); context.moveTo(L, y); context.lineTo(L + w, y); context.stroke();
    context.textAlign = "right"; context.fillText(tick(logY ? 10 ** vy : vy), L - 6, y + 4);
    context.textAlign = k === 4 ? "right" : k ? "center" : "left"; context.fillText(tick(logX ? 10 ** vx : vx), L + w * k / 4, area.height - 8);
  }
  return { context, X, Y, L, T, w, h };
}
const tick = (value) => value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(0) : number(value, 2);
function line({ context, X, Y }, xs, ys, stroke) {
  context.beginPath();
  xs.forEach((x, k) => context[k ? "lineTo" : "moveTo"](X(x), Y(ys[k])));
  context.strokeStyle = stroke; context.lineWidth = 2; context.stroke();
}
function dashed(context, x0, y0, x1, y1) {
  context.setLineDash([5, 4]); context.beginPath(); context.moveTo(x0, y0); context.lineTo(x1, y1);
  context.strokeStyle = css("--minus"); context.lineWidth = 1.5; context.stroke(); context.setLineDash([]);
}
function showPath(alpha) {
  const figure = plot("path", bench.alphas, bench.errors, { logX: true });
  line(figure, bench.alphas, bench.errors, css("--accent"));
  const x = Math.min(Math.max(figure.X(alpha), figure.L), figure.L + figure.w), y = Math.min(Math.max(figure.Y(pathError()), figure.T), figure.T + figure.h);
  dashed(figure.context, x, figure.T, x, figure.T + figure.h);
  figure.context.beginPath(); figure.context.arc(x, y, 5, 0, 7); figure.context.fillStyle = css("--minus"); figure.context.fill();
}
function showSpectrum(alpha) {
  const values = bench.spectrum.filter((value) => value > 1e-14 * bench.spectrum[0]), xs = values.map((_, k) => k + 1);
  const figure = plot("spectrum", xs, [...values, alpha], { logX: true, logY: true });
  line(figure, xs, values, css("--accent"));
  dashed(figure.context, figure.L, figure.Y(alpha), figure.L + figure.w, figure.Y(alpha));
  figure.context.fillStyle = css("--minus"); figure.context.textAlign = "left"; figure.context.fillText("alpha", figure.L + 6, figure.Y(alpha) - 5);
}
function showScatter() {
  $("answers-title").textContent = "Left-out predictions over targets";
  const figure = plot("answers", bench.targets, bench.answers, { equal: true }), { context, X, Y } = figure;
  const low = Math.min(...bench.targets, ...bench.answers), high = Math.max(...bench.targets, ...bench.answers);
  dashed(context, X(low), Y(low), X(high), Y(high));
  context.fillStyle = css("--accent"); context.globalAlpha = 0.65;
  bench.targets.forEach((value, k) => { context.beginPath(); context.arc(X(value), Y(bench.answers[k]), 2.8, 0, 7); context.fill(); });
  context.globalAlpha = 1;
}
function showConfusion() {
  $("answers-title").textContent = "Classes (rows) and left-out answers";
  const canvas = $("answers"), area = canvas.getBoundingClientRect(), context = sharp(canvas, area.width, area.height);
  const n = bench.classes.length, L = 58, side = Math.min((area.width - L) / n, (area.height - 20) / n), most = Math.max(...bench.confusion.flat(), 1);
  context.font = `${Math.min(12, side * 0.6)}px system-ui`; context.textBaseline = "middle";
  bench.confusion.forEach((row, a) => {
    context.textAlign = "right"; context.fillStyle = css("--soft"); context.fillText(bench.classes[a].slice(0, 9), L - 6, (a + 0.5) * side);
    context.textAlign = "center"; context.fillText(bench.classes[a].slice(0, Math.max(1, side / 8)), L + (a + 0.5) * side, n * side + 10);
    row.forEach((count, b) => {
      context.globalAlpha = count ? 0.18 + 0.82 * count / most : 0.05;
      context.fillStyle = css(a === b ? "--plus" : "--minus");
      context.fillRect(L + b * side + 1, a * side + 1, side - 2, side - 2);
      context.globalAlpha = 1;
      if (count && side > 13) { context.fillStyle = count / most > 0.5 ? css("--card") : css("--ink"); context.fillText(count, L + (b + 0.5) * side, (a + 0.5) * side); }
    });
  });
}

// -- tabs and beginning ---------------------------------------------------------------------------------------------
function show(name) {
  for (const own of ["map", "kernel"]) {
    $(`view-${own}`).hidden = own !== name;
    $(`tab-${own}`).setAttribute("aria-selected", String(own === name));
  }
  if (name === "map") redraw();
  else if (bench) showBench();
  else tune();
}
function repaint() {
  setColour($("colour").value);
  if (thumbs) thumbs = [];
  if (walls) walls.images = [];
  redraw();
  if (bench && !$("view-kernel").hidden) showBench();
}
$("tab-map").addEventListener("click", () => show("map"));
$("tab-kernel").addEventListener("click", () => show("kernel"));
dark.addEventListener("change", repaint);
addEventListener("resize", repaint);

try {
  overview = await source.ask("overview");
  codes = overview.map.codes;
  $("title").textContent = overview.title;
  document.title = `${overview.title}: explore`;
  $("subtitle").textContent = `${overview.total} ${overview.samples} · ${overview.map.words} · ${overview.kernel}`;
  const left = overview.total - codes.length;
  $("note").textContent = left ? `${codes.length} of ${overview.total} samples are shown, evenly spaced.` : "";
  if (still?.data.kernel === null) $("tab-kernel").hidden = true;
  prepareTools();
  setColour($("colour").value);
  fitBox();
  hints();
  redraw();
  document.body.dataset.ready = "true";
} catch (error) { fail(error); }
