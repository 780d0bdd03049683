// Lines from queries to keys. Token text is only ever put into text nodes.
"use strict";

const STEP = 18; // pixels from token to token
const FEW = 4; // heads that are all shown at first; of more only one, whose lines can be told apart
const MOST = 1500; // lines drawn when no token is chosen
const data = JSON.parse(document.getElementById("data").textContent);
const [M, N] = [data.queries.length, data.keys.length];
const find = (id) => document.getElementById(id);
const canvas = find("lines");
const unpacked = new Map();
const state = { layer: 0, heads: new Set(), hover: null, pinned: null };

const colour = (place) => `hsl(${(place * 137.5 + 215) % 360} 62% 50%)`;
const code = (place, row, col) => unpacked.get(state.layer)[(place * N + col) * M + row];
const weight = (value) => (value / 255) ** 2;

async function unpack(layer) {
  if (unpacked.has(layer)) return;
  const packed = Uint8Array.from(atob(data.layers[layer].codes), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  unpacked.set(layer, new Uint8Array(await new Response(stream).arrayBuffer()));
}

function make(tag, parent, text) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) element.textContent = text;
  return element;
}

function build() {
  data.layers.forEach((layer, place) => (make("option", find("layer"), layer.layer).value = place));
  for (const side of ["queries", "keys"]) {
    data[side].forEach((label, position) => {
      const item = make("li", find(side), label);
      item.title = `${position} ${label}`;
      item.onmouseenter = () => change({ hover: [side, position] });
      item.onclick = () => change({ pinned: same(state.pinned, [side, position]) ? null : [side, position] });
    });
    find(side).onmouseleave = () => change({ hover: null });
  }
  find("all").onclick = () => choose(data.layers[state.layer].heads.keys());
  find("layer").onchange = (event) => show(Number(event.target.value));
  find("scroller").onscroll = draw;
  find("scroller").onkeydown = keys;
  new ResizeObserver(draw).observe(find("scroller"));
}

const same = (one, other) => one && other && one[0] === other[0] && one[1] === other[1];

async function show(layer) {
  await unpack(layer);
  Object.assign(state, { layer, heads: first(data.layers[layer].heads) });
  find("heads").querySelectorAll("label").forEach((label) => label.remove());
  data.layers[layer].heads.forEach((head, place) => {
    const label = make("label", find("heads"));
    const box = make("input", label);
    Object.assign(box, { type: "checkbox", checked: state.heads.has(place) });
    box.style.accentColor = colour(place);
    label.style.borderColor = colour(place);
    make("span", label, head);
    box.onchange = () => { state.heads[box.checked ? "add" : "delete"](place); draw(); };
    label.ondblclick = () => only(place);
    label.title = "double click: this head alone";
  });
  draw();
}

// the heads that stay chosen in another layer, or those to begin with
function first(heads) {
  const kept = [...state.heads].filter((place) => place < heads.length);
  return new Set(kept.length ? kept : heads.length <= FEW ? heads.keys() : [0]);
}

const only = (place) => choose([place]);

function choose(places) {
  state.heads = new Set(places);
  find("heads").querySelectorAll("input").forEach((box, at) => (box.checked = state.heads.has(at)));
  draw();
}

function change(news) {
  Object.assign(state, news);
  draw();
}

function keys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    const [side, at] = state.pinned ?? ["queries", step > 0 ? -1 : 0];
    const count = side === "queries" ? M : N;
    const next = (at + step + count) % count;
    change({ pinned: [side, next] });
    find(side).children[next].scrollIntoView({ block: "nearest" });
    event.preventDefault();
  } else if (event.key === "Escape") change({ pinned: null, hover: null });
}

// every link that is to be seen, as [head's place, query, key, code], strongest last
function links() {
  const focus = state.hover ?? state.pinned;
  const found = [];
  const take = (place, row, col, least) => {
    const value = code(place, row, col);
    if (value >= least) found.push([place, row, col, value]);
  };
  const least = focus ? 1 : threshold();
  for (const place of state.heads) {
    if (focus && focus[0] === "queries") for (let col = 0; col < N; col++) take(place, focus[1], col, least);
    else if (focus) for (let row = 0; row < M; row++) take(place, row, focus[1], least);
    else for (let col = 0; col < N; col++) for (let row = 0; row < M; row++) take(place, row, col, least);
  }
  return found.sort((one, other) => one[3] - other[3]);
}

// the code above which no more than MOST links of the shown heads lie
function threshold() {
  const counts = new Uint32Array(256);
  const codes = unpacked.get(state.layer);
  for (const place of state.heads)
    for (let at = place * M * N; at < (place + 1) * M * N; at++) counts[codes[at]]++;
  let [least, sum] = [255, counts[255]];
  while (least > 1 && sum + counts[least - 1] <= MOST) sum += counts[--least];
  return least;
}

// heads leave a token side by side, so that none covers the others
const aside = (place) => 10 * ((place + 0.5) / data.layers[state.layer].heads.length - 0.5);

function draw() {
  if (!unpacked.has(state.layer)) return;
  const [width, height, ratio] = [canvas.parentElement.clientWidth, find("scroller").clientHeight, devicePixelRatio || 1];
  const tall = Math.min(height, Math.max(M, N) * STEP);
  Object.assign(canvas, { width: width * ratio, height: tall * ratio });
  Object.assign(canvas.style, { width: `${width}px`, height: `${tall}px` });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.translate(0, STEP / 2 + canvas.parentElement.getBoundingClientRect().top - canvas.getBoundingClientRect().top);
  const shown = links();
  for (const [place, row, col, value] of shown) {
    const share = weight(value);
    const [from, to] = [row * STEP + aside(place), col * STEP + aside(place)];
    pen.globalAlpha = 0.04 + 0.96 * Math.sqrt(share);
    pen.lineWidth = 0.6 + 2.4 * share;
    pen.strokeStyle = colour(place);
    pen.beginPath();
    pen.moveTo(0, from);
    pen.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
    pen.stroke();
  }
  mark(shown);
}

function mark(shown) {
  const focus = state.hover ?? state.pinned;
  for (const side of ["queries", "keys"])
    [...find(side).children].forEach((item, at) => item.classList.toggle("here", same(focus, [side, at]) === true));
  const name = (side, at) => `${at} ${data[side][at]}`;
  const strongest = shown.slice(-5).reverse();
  const told = strongest.map(([place, row, col, value]) => {
    const other = focus && focus[0] === "keys" ? name("queries", row) : name("keys", col);
    return `${focus ? "" : `${name("queries", row)} → `}${other} ${weight(value).toFixed(3)} (head ${data.layers[state.layer].heads[place]})`;
  });
  const start = focus ? `${focus[0] === "queries" ? "from" : "to"} ${name(...focus)}: ` : `${shown.length} strongest links: `;
  find("told").textContent = start + (told.join(", ") || "nothing");
}

build();
show(0);
