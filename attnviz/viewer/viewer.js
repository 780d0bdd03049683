// The deep-zoom map of one head: canvas, tiles, labels, cross-hair, keys. No dependencies, no markup from data.
//
//   const viewer = create(root, onPick, link);
//   viewer.show(spec, source);    may be called again with another head
//   viewer.adopt(look);           choices of CHOICES to show, those left out as they are at first
//   viewer.destroy();
//
// spec:   {id, rows, cols, rowLabels, colLabels, visible, largest, colours, masked, title, start, selected, rowNumbers,
//         colNumbers}; visible and largest hold one number a row: keys it may see, its largest weight; the last three
//         may be left out: {row, col} to mark, and what rows and columns are numbered by other than their place. With
//         the same id a spec brings what was not known before, or another selection, and the map stays as it is.
// source: {tile(level, down, across, signal, part) -> Promise<Uint8Array | null>}, codes row by row as in tiles.py; null
//         where the source does not have that tile, so that a coarser one stands in for it. part(codes, rows) may be
//         called before, when the first rows are there.
//         With change, three colours, codes are those of codeOfChange and colours run both ways from the middle one.
// onPick: called with {row, col}
// link:   what maps that move together share, all of it optional: moved(place) is called when someone moves this one, and
//         place is for viewer.follow() of another; kept(level) when a tile came, and counts(level) adds what the others'
//         tiles hold to the automatic range of colours; looked(changes) is called with choices that someone made
//         here

const TILE = 256;
const DECADES = 6;
const STEPS = 254 / DECADES;
const LABEL_SIZE = 12;
const CACHED = 400;
const MOST_ZOOM = 64;
const MIN_HEIGHT = 260;
const LABELS_MEASURED = 1000;
const FIRST = { scale: "root", show: "weight", colours: "cividis", range: "auto" };

export const weightOf = (code) => (code > 0 ? 10 ** ((code - 1) / STEPS - DECADES) : 0);

// What colours are even in, of a code.
const SCALES = { root: (code) => Math.sqrt(weightOf(code)), log: (code) => code, linear: weightOf };

// A change of weight as a byte: 0 where there is no weight at all, else 128 and up to 127 steps either way, even steps of
// its root.
export const codeOfChange = (change) => 128 + Math.round(127 * Math.sign(change) * Math.sqrt(Math.abs(change)));
export const changeOf = (code) => Math.sign(code - 128) * ((code - 128) / 127) ** 2;

export function create(root, onPick, link = {}) {
  const ui = build(root);
  const state = { spec: null, source: null, tiles: new Map(), waiting: new Map(), ranges: new Map(), cross: null, view: null, frame: 0 };
  const gutter = { left: 104, top: 92 };
  const look = { ...FIRST };

  // ---- where things are: x, y is the map position (in tokens) at the plot's corner, zoom is pixels per token

  const plot = () => ({
    width: Math.max(1, ui.canvas.clientWidth - gutter.left),
    height: Math.max(1, ui.canvas.clientHeight - gutter.top),
  });
  const fitted = () => Math.min(plot().width / state.spec.cols, plot().height / state.spec.rows, MOST_ZOOM);
  const deepest = () => {
    let level = 0;
    while (Math.max(state.spec.rows, state.spec.cols) > TILE * 2 ** level) level += 1;
    return level;
  };
  const level = () => Math.min(deepest(), Math.max(0, Math.ceil(-Math.log2(state.view.zoom) - 1e-9)));

  function fit() {
    state.view = { x: 0, y: 0, zoom: fitted(), whole: true };
  }

  // Margins as wide as the labels need, and the height that shows the whole map at its full width.
  function arrange() {
    const { spec } = state;
    const arranged = `${spec.id} ${spec.rowLabels.length} ${ui.canvas.clientWidth}`;
    if (state.arranged === arranged) return;
    state.arranged = arranged;
    const narrow = ui.canvas.clientWidth < 520;
    const context = ui.canvas.getContext("2d");
    context.font = `${LABEL_SIZE}px ${getComputedStyle(ui.root).fontFamily}`;
    const widest = (labels, count, most, least) => {
      const names = count > LABELS_MEASURED ? ["m".repeat(7)] : [String(count), ...labels];
      const width = names.reduce((found, name) => Math.max(found, context.measureText(name).width), 0);
      return Math.min(most, Math.max(least, Math.ceil(width) + 20));
    };
    gutter.left = widest(spec.rowLabels, spec.rows, narrow ? 66 : 104, 66);
    gutter.top = widest(spec.colLabels, spec.cols, narrow ? 60 : 92, 44);
    const zoom = Math.min(plot().width / spec.cols, MOST_ZOOM);
    const height = Math.round(gutter.top + zoom * spec.rows + 2);
    ui.canvas.style.height = `min(${Math.max(MIN_HEIGHT, height)}px, 76vh)`;
  }

  function clampView() {
    const { view, spec } = state;
    const { width, height } = plot();
    if (view.whole) view.zoom = fitted();
    view.zoom = Math.min(MOST_ZOOM, Math.max(fitted(), view.zoom));
    view.x = Math.min(Math.max(0, spec.cols - width / view.zoom), Math.max(0, view.x));
    view.y = Math.min(Math.max(0, spec.rows - height / view.zoom), Math.max(0, view.y));
  }

  function zoomAt(factor, px, py) {
    const { view } = state;
    const before = { x: view.x + px / view.zoom, y: view.y + py / view.zoom };
    view.zoom = Math.min(MOST_ZOOM, Math.max(fitted(), view.zoom * factor));
    view.whole = view.zoom === fitted();
    view.x = before.x - px / view.zoom;
    view.y = before.y - py / view.zoom;
    acted();
  }

  // ---- maps that move together: where this one looks, in tokens and shares of its own size

  function place() {
    clampView();
    const { x, y, zoom, whole } = state.view;
    return { x, y, nearer: zoom / fitted(), whole, cross: state.cross, look: state.spec.change ? { range: look.range } : { ...look } };
  }

  function follow({ x, y, nearer, whole, cross, look: theirs }) {
    if (!state.view) return;
    state.view = { x, y, zoom: nearer * fitted(), whole };
    state.cross = cross;
    adopt(theirs);
    redraw();
    readOut();
  }

  function acted() {
    redraw();
    readOut();
    if (link.moved) link.moved(place());
  }

  // ---- tiles: asked for when in view, dropped when no longer, the least recently used forgotten

  const keyOf = (z, down, across) => `${z}/${down}/${across}`;

  function wanted() {
    const z = level();
    const side = TILE * 2 ** z;
    const { view, spec } = state;
    const { width, height } = plot();
    const right = Math.min(spec.cols, view.x + width / view.zoom);
    const bottom = Math.min(spec.rows, view.y + height / view.zoom);
    const found = [];
    for (let down = Math.floor(view.y / side); down * side < bottom; down += 1)
      for (let across = Math.floor(view.x / side); across * side < right; across += 1) found.push([z, down, across]);
    return found;
  }

  function request(needed) {
    const keys = new Set(needed.map((tile) => keyOf(...tile)));
    for (const [key, abort] of state.waiting)
      if (!keys.has(key)) {
        abort.abort();
        state.waiting.delete(key);
        if (!isWhole(key)) state.tiles.delete(key);
      }
    for (const tile of needed) {
      const key = keyOf(...tile);
      if (state.tiles.has(key) || state.waiting.has(key)) continue;
      const abort = new AbortController();
      const { id } = state.spec;
      const take = (codes, rows) => {
        if (state.spec.id !== id || abort.signal.aborted) return;
        const size = sizeOf(...tile);
        keep(key, codes && { codes, ...size, there: rows ?? size.height, z: tile[0], down: tile[1], across: tile[2] });
        redraw();
        readOut();
      };
      state.waiting.set(key, abort);
      state.source
        .tile(...tile, abort.signal, take)
        .then((codes) => take(codes))
        .catch((error) => {
          if (error.name === "AbortError" || state.spec.id !== id) return;
          keep(key, null);
          say(`This part of the map could not be read: ${error.message}`);
        })
        .finally(() => {
          if (state.waiting.get(key) === abort) state.waiting.delete(key);
          showProgress();
        });
    }
    showProgress();
  }

  // The share of rows there of all tiles in view, while some are missing.
  function showProgress() {
    const busy = state.waiting.size > 0;
    ui.root.toggleAttribute("data-busy", busy);
    if (!busy) return;
    const tiles = wanted();
    const there = (tile) => {
      const found = state.tiles.get(keyOf(...tile));
      return found ? found.there / found.height : 0;
    };
    ui.progress.value = tiles.reduce((sum, tile) => sum + there(tile), 0) / tiles.length;
  }

  const isWhole = (key) => {
    const tile = state.tiles.get(key);
    return Boolean(tile) && tile.there === tile.height;
  };

  function sizeOf(z, down, across) {
    const { rows, cols } = state.spec;
    const high = Math.ceil(rows / 2 ** z) - down * TILE;
    const wide = Math.ceil(cols / 2 ** z) - across * TILE;
    return { height: Math.min(TILE, high), width: Math.min(TILE, wide) };
  }

  function keep(key, tile) {
    state.tiles.set(key, tile);
    if (tile) state.ranges.delete(tile.z);
    if (tile && link.kept) link.kept(tile.z);
    for (const old of state.tiles.keys()) {
      if (state.tiles.size <= CACHED) break;
      state.tiles.delete(old);
    }
  }

  function picture(key) {
    const tile = state.tiles.get(key);
    if (!tile) return null;
    state.tiles.delete(key);
    state.tiles.set(key, tile);
    const range = rangeOf(tile.z);
    const version = `${look.scale} ${look.show} ${look.colours} ${range}`;
    if (tile.version !== version) {
      tile.image = tile.image || document.createElement("canvas");
      tile.image.width = tile.width;
      tile.image.height = tile.height;
      tile.image.getContext("2d").putImageData(colour(tile, range), 0, 0);
      tile.version = version;
    }
    return tile.image;
  }

  // ---- colours: a code, moved by its row's shift, through a table

  function shiftOf(row, z) {
    if (look.show === "weight" || state.spec.change) return 0;
    const last = Math.min(state.spec.rows, (row + 1) * 2 ** z) - 1;
    if (look.show === "visible") return STEPS * Math.log10(Math.max(1, state.spec.visible[last] || 1));
    let largest = 0;
    for (let r = row * 2 ** z; r <= last; r += 1) largest = Math.max(largest, state.spec.largest[r] || 0);
    return largest > 0 ? -STEPS * Math.log10(largest) : 0;
  }

  // What a tile's codes amount to once shifted: a histogram, kept with the tile for each way of showing it.
  function histogram(tile) {
    tile.counts = tile.counts || {};
    if (!tile.counts[look.show]) {
      const counts = new Uint32Array(1024);
      for (let row = 0; row < tile.there; row += 1) {
        const shift = Math.round(shiftOf(tile.down * TILE + row, tile.z));
        for (let col = 0; col < tile.width; col += 1) {
          const code = tile.codes[row * tile.width + col];
          if (code) counts[Math.min(1023, Math.max(1, code + shift))] += 1;
        }
      }
      tile.counts[look.show] = counts;
    }
    return tile.counts[look.show];
  }

  // How often each code stands in the tiles read so far on a level.
  function countsOf(z) {
    const counts = new Float64Array(1024);
    for (const tile of state.tiles.values()) if (tile && tile.z === z) histogram(tile).forEach((count, code) => (counts[code] += count));
    return counts;
  }

  const rangeOf = (z) => state.ranges.get(z) || state.ranges.set(z, bounds(z)).get(z);

  // The range of colours: all codes, or what the tiles read so far on this level hold without their extremes; and whether
  // there are some below and above.
  function bounds(z) {
    if (look.range === "full") return [1, look.show === "visible" ? 255 + 2 * STEPS : 255];
    const counts = countsOf(z);
    if (state.spec.change) return evenly(counts);
    for (const others of link.counts ? link.counts(z) : []) others.forEach((count, code) => (counts[code] += count));
    const total = counts.reduce((sum, count) => sum + count, 0);
    const at = (share) => {
      let sum = 0;
      const code = counts.findIndex((count) => (sum += count) >= share * total && sum > 0);
      return Math.max(1, code);
    };
    const [low, high] = [at(0.02), at(0.995)];
    const range = high - low >= 16 ? [low, high] : [Math.max(1, high - 16), Math.max(17, high)];
    return [...range, counts.slice(1, range[0]).some(Boolean), counts.slice(range[1] + 1).some(Boolean)];
  }

  // As far below the middle as above it.
  function evenly(counts) {
    const sizes = new Float64Array(128);
    counts.forEach((count, code) => code && (sizes[Math.min(127, Math.abs(code - 128))] += count));
    const total = sizes.reduce((sum, count) => sum + count, 0);
    let sum = 0;
    const top = Math.max(4, sizes.findIndex((count) => (sum += count) >= 0.998 * total));
    const beyond = sizes.slice(top + 1).some(Boolean);
    return [128 - top, 128 + top, beyond, beyond];
  }

  // Where colours begin: at the low end on a log scale, at no weight on the others, as in the figures.
  const startOf = (low) => (look.scale === "log" ? low : 0);

  function colour(tile, [low, high]) {
    const image = new ImageData(tile.width, tile.height);
    const pixels = new Uint32Array(image.data.buffer);
    const stops = (state.spec.change ?? state.spec.colours[look.colours]).map(parse);
    const table = new Uint32Array(256);
    for (let index = 0; index < 256; index += 1) table[index] = pack(mix(stops, index / 255));
    const masked = pack(parse(getComputedStyle(ui.root).getPropertyValue("--map-masked").trim() || state.spec.masked));
    const scaled = state.spec.change ? (code) => code : SCALES[look.scale];
    const [least, most] = [state.spec.change ? low : startOf(low), high].map(scaled);
    for (let row = 0; row < tile.there; row += 1) {
      const shift = shiftOf(tile.down * TILE + row, tile.z);
      for (let col = 0; col < tile.width; col += 1) {
        const at = row * tile.width + col;
        const code = tile.codes[at];
        if (code === 0) {
          pixels[at] = masked;
          continue;
        }
        const part = (scaled(code + shift) - least) / (most - least);
        pixels[at] = table[Math.round(255 * Math.min(1, Math.max(0, part)))];
      }
    }
    return image;
  }

  // ---- drawing

  function redraw() {
    if (!state.frame) state.frame = requestAnimationFrame(draw);
  }

  function draw() {
    state.frame = 0;
    if (!state.spec || !ui.canvas.isConnected || ui.canvas.clientWidth === 0) return;
    arrange();
    clampView();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [ui.canvas.clientWidth, ui.canvas.clientHeight];
    if (ui.canvas.width !== Math.round(width * ratio) || ui.canvas.height !== Math.round(height * ratio)) {
      ui.canvas.width = Math.round(width * ratio);
      ui.canvas.height = Math.round(height * ratio);
    }
    const context = ui.canvas.getContext("2d");
    const style = getComputedStyle(ui.root);
    const ink = { text: style.color, mark: style.getPropertyValue("--map-mark") };
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const needed = wanted();
    drawTiles(context, needed);
    drawFrame(context, ink);
    drawLabels(context, ink);
    drawAxes(context, ink);
    drawSelected(context, ink);
    drawCross(context, ink);
    drawLegend();
    request(needed);
  }

  // Both ends of the colours, what they stand for and how they are spaced.
  function drawLegend() {
    const { spec } = state;
    const [low, high, below, above] = rangeOf(level());
    const [least, most] = spec.change ? [signed(changeOf(low)), signed(changeOf(high))] : [startOf(low), high].map((code) => format(weightOf(code)));
    const about = spec.change ? "difference" : `${CHOICES.show[1][look.show]}, ${CHOICES.scale[1][look.scale]}`;
    const stops = spec.change ?? spec.colours[look.colours];
    const first = below && (spec.change || look.scale === "log") ? `≤ ${least}` : least;
    const last = above ? `≥ ${most}` : most;
    const drawn = [first, last, about, ...stops].join();
    if (ui.legend.dataset.drawn === drawn) return;
    ui.legend.dataset.drawn = drawn;
    ui.legend.replaceChildren();
    add(ui.legend, "span", { textContent: first });
    add(ui.legend, "i", {}).style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    add(ui.legend, "span", { textContent: last });
    add(ui.legend, "span", { textContent: about, className: "about" });
  }

  const toX = (col) => gutter.left + (col - state.view.x) * state.view.zoom;
  const toY = (row) => gutter.top + (row - state.view.y) * state.view.zoom;

  function drawTiles(context, needed) {
    const { width, height } = plot();
    context.save();
    context.beginPath();
    context.rect(gutter.left, gutter.top, width, height);
    context.clip();
    context.imageSmoothingEnabled = false;
    for (const [z, down, across] of needed) {
      let [up, d, a] = [z, down, across];
      while (!isWhole(keyOf(up, d, a)) && up < deepest()) [up, d, a] = [up + 1, d >> 1, a >> 1];
      for (const from of up > z ? [[up, d, a], [z, down, across]] : [[z, down, across]]) {
        const image = picture(keyOf(...from));
        if (image) drawPart(context, image, [z, down, across], from);
      }
    }
    context.restore();
  }

  function drawPart(context, image, [z, down, across], [up, d, a]) {
    const size = 2 ** z;
    const part = 2 ** (up - z);
    const own = sizeOf(z, down, across);
    const from = { x: (across * TILE) / part - a * TILE, y: (down * TILE) / part - d * TILE };
    const right = Math.min(state.spec.cols, (across * TILE + own.width) * size);
    const bottom = Math.min(state.spec.rows, (down * TILE + own.height) * size);
    const [x, y] = [toX(across * TILE * size), toY(down * TILE * size)];
    context.drawImage(image, from.x, from.y, own.width / part, own.height / part, x, y, toX(right) - x, toY(bottom) - y);
  }

  function drawFrame(context, ink) {
    const [right, bottom] = [toX(state.spec.cols), toY(state.spec.rows)];
    const { width, height } = plot();
    context.strokeStyle = ink.text;
    context.globalAlpha = 0.25;
    context.lineWidth = 1;
    context.strokeRect(gutter.left - 0.5, gutter.top - 0.5, Math.min(width, right - gutter.left) + 1, Math.min(height, bottom - gutter.top) + 1);
    context.globalAlpha = 1;
  }

  function drawLabels(context, ink) {
    const { view, spec } = state;
    const { width, height } = plot();
    const every = view.zoom >= LABEL_SIZE ? 1 : niceStep((LABEL_SIZE * 4) / view.zoom);
    context.font = `${LABEL_SIZE}px ${getComputedStyle(ui.root).fontFamily}`;
    context.textBaseline = "middle";
    context.fillStyle = ink.text;
    // the last label stays on the canvas where its position is at the very end
    const text = (labels, numbers, index) => (every === 1 && labels[index]) || String(numbered(numbers, index));
    context.textAlign = "right";
    for (let row = firstOf(view.y, every); row < Math.min(spec.rows, view.y + height / view.zoom); row += every) {
      context.globalAlpha = state.cross && state.cross.row === row ? 1 : 0.7;
      context.fillText(clip(context, text(spec.rowLabels, spec.rowNumbers, row), gutter.left - 14), gutter.left - 8, Math.min(toY(row + (every === 1 ? 0.5 : 0)), gutter.top + height - LABEL_SIZE / 2));
    }
    context.textAlign = "left";
    for (let col = firstOf(view.x, every); col < Math.min(spec.cols, view.x + width / view.zoom); col += every) {
      context.globalAlpha = state.cross && state.cross.col === col ? 1 : 0.7;
      context.save();
      context.translate(Math.min(toX(col + (every === 1 ? 0.5 : 0)), gutter.left + width - LABEL_SIZE / 2), gutter.top - 8);
      context.rotate(-Math.PI / 2);
      context.fillText(clip(context, text(spec.colLabels, spec.colNumbers, col), gutter.top - 14), 0, 0);
      context.restore();
    }
    context.globalAlpha = 1;
  }

  // What runs down and what runs across, in the corner.
  function drawAxes(context, ink) {
    context.fillStyle = ink.text;
    context.globalAlpha = 0.6;
    context.textAlign = "right";
    context.textBaseline = "alphabetic";
    context.fillText("key →", gutter.left - 14, gutter.top - 26);
    context.fillText("query ↓", gutter.left - 14, gutter.top - 9);
    context.globalAlpha = 1;
  }

  const firstOf = (start, every) => Math.max(0, Math.ceil((start - (every === 1 ? 0.5 : 0)) / every) * every);

  // Two small arrows in the margins, so that no cell is covered.
  function drawSelected(context, ink) {
    const { selected } = state.spec;
    if (!selected) return;
    const half = state.view.zoom / 2;
    const [x, y] = [toX(selected.col) + half, toY(selected.row) + half];
    const arrow = (points) => {
      context.beginPath();
      points.forEach(([px, py]) => context.lineTo(px, py));
      context.fill();
    };
    context.fillStyle = ink.mark;
    if (y >= gutter.top && y <= gutter.top + plot().height)
      arrow([[gutter.left - 1, y], [gutter.left - 7, y - 4.5], [gutter.left - 7, y + 4.5]]);
    if (x >= gutter.left && x <= gutter.left + plot().width)
      arrow([[x, gutter.top - 1], [x - 4.5, gutter.top - 7], [x + 4.5, gutter.top - 7]]);
  }

  function drawCross(context, ink) {
    if (!state.cross) return;
    const size = 2 ** level();
    const width = Math.min(plot().width, toX(state.spec.cols) - gutter.left);
    const height = Math.min(plot().height, toY(state.spec.rows) - gutter.top);
    const [x, y] = [toX(state.cross.col), toY(state.cross.row)];
    const [w, h] = [size * state.view.zoom, size * state.view.zoom];
    context.save();
    context.beginPath();
    context.rect(gutter.left, gutter.top, width, height);
    context.clip();
    context.strokeStyle = ink.mark;
    context.lineWidth = 1;
    context.globalAlpha = 0.55;
    context.strokeRect(gutter.left - 2, y + 0.5, width + 4, Math.max(1, h - 1));
    context.strokeRect(x + 0.5, gutter.top - 2, Math.max(1, w - 1), height + 4);
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
    context.restore();
  }

  // ---- reading out

  function codeAt(row, col) {
    for (let z = level(); z <= deepest(); z += 1) {
      const tile = state.tiles.get(keyOf(z, Math.floor(row / (TILE << z)), Math.floor(col / (TILE << z))));
      if (tile && (row >> z) - tile.down * TILE < tile.there) return { size: 2 ** z, code: tile.codes[((row >> z) - tile.down * TILE) * tile.width + ((col >> z) - tile.across * TILE)] };
    }
    return { size: 2 ** level(), code: null };
  }

  function readOut() {
    if (!state.cross) return;
    const { row, col } = state.cross;
    const { spec } = state;
    const { size, code } = codeAt(row, col);
    const first = (at) => Math.floor(at / size) * size;
    const name = (labels, numbers, at, count) =>
      size === 1
        ? `${numbered(numbers, at)} ${isolate(labels[at] ?? "")}`
        : `${numbered(numbers, first(at))} to ${numbered(numbers, Math.min(count, first(at) + size) - 1)}`;
    const rows = `${size === 1 ? "query" : "queries"} ${name(spec.rowLabels, spec.rowNumbers, row, spec.rows)}`;
    const cols = `${size === 1 ? "key" : "keys"} ${name(spec.colLabels, spec.colNumbers, col, spec.cols)}`;
    const where = `${rows} → ${cols}`;
    const value = code === null ? "…" : code === 0 ? "masked" : spec.change ? signed(changeOf(code)) : weighed(code);
    say(`${where}: ${value}${size > 1 && code ? ` (max over ${size} × ${size})` : ""}`);
  }

  function say(text) {
    ui.out.textContent = text;
  }

  // ---- what people do

  function cellAt(px, py) {
    const size = 2 ** level();
    const col = Math.floor((state.view.x + (px - gutter.left) / state.view.zoom) / size) * size;
    const row = Math.floor((state.view.y + (py - gutter.top) / state.view.zoom) / size) * size;
    if (px < gutter.left || py < gutter.top || row >= state.spec.rows || col >= state.spec.cols) return null;
    return { row, col };
  }

  function moveCross(down, across) {
    const size = 2 ** level();
    const { spec, view } = state;
    const cross = state.cross || spec.selected || { row: Math.floor(view.y / size) * size, col: Math.floor(view.x / size) * size };
    const step = (at, by, count) => Math.min(Math.floor((count - 1) / size) * size, Math.max(0, Math.floor(at / size) * size + by * size));
    state.cross = { row: step(cross.row, down, spec.rows), col: step(cross.col, across, spec.cols) };
    const { width, height } = plot();
    const seen = { wide: width / view.zoom, high: height / view.zoom };
    if (state.cross.col < view.x) view.x = state.cross.col;
    if (state.cross.col + size > view.x + seen.wide) view.x = state.cross.col + size - seen.wide;
    if (state.cross.row < view.y) view.y = state.cross.row;
    if (state.cross.row + size > view.y + seen.high) view.y = state.cross.row + size - seen.high;
    acted();
  }

  function pick() {
    if (state.cross && onPick) onPick({ ...state.cross });
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !state.spec) return;
    const far = event.shiftKey ? 10 : 1;
    const middle = () => [plot().width / 2, plot().height / 2];
    const actions = {
      ArrowUp: () => moveCross(-far, 0),
      ArrowDown: () => moveCross(far, 0),
      ArrowLeft: () => moveCross(0, -far),
      ArrowRight: () => moveCross(0, far),
      "+": () => zoomAt(2, ...focus(middle())),
      "=": () => zoomAt(2, ...focus(middle())),
      "-": () => zoomAt(0.5, ...focus(middle())),
      0: () => (fit(), acted()),
      Home: () => (fit(), acted()),
      Enter: pick,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
    readOut();
  }

  function focus(otherwise) {
    if (!state.cross) return otherwise;
    return [toX(state.cross.col) - gutter.left, toY(state.cross.row) - gutter.top];
  }

  const fingers = new Map();
  let moved = 0;

  function onDown(event) {
    ui.canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    moved = 0;
  }

  function onMove(event) {
    const before = fingers.get(event.pointerId);
    if (!before) {
      state.cross = state.spec && cellAt(event.offsetX, event.offsetY);
      acted();
      return;
    }
    const now = [event.offsetX, event.offsetY];
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    if (others.length) {
      const apart = (place) => Math.hypot(place[0] - others[0][0], place[1] - others[0][1]) || 1;
      zoomAt(apart(now) / apart(before), others[0][0] - gutter.left, others[0][1] - gutter.top);
    } else {
      state.view.whole = false;
      state.view.x -= (now[0] - before[0]) / state.view.zoom;
      state.view.y -= (now[1] - before[1]) / state.view.zoom;
    }
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    fingers.set(event.pointerId, now);
    acted();
  }

  function onUp(event) {
    const single = fingers.size === 1;
    fingers.delete(event.pointerId);
    if (!single || moved > 4) return;
    state.cross = cellAt(event.offsetX, event.offsetY);
    acted();
    pick();
  }

  function onWheel(event) {
    event.preventDefault();
    zoomAt(2 ** (-event.deltaY / (event.deltaMode ? 6 : 240)), event.offsetX - gutter.left, event.offsetY - gutter.top);
    state.cross = cellAt(event.offsetX, event.offsetY);
    acted();
  }

  function adopt(theirs) {
    const changes = state.spec?.change ? { range: theirs.range } : theirs;
    if (Object.entries(changes).every(([name, value]) => look[name] === value)) return;
    Object.assign(look, changes);
    for (const name of Object.keys(changes)) ui.selects[name].value = changes[name];
    state.ranges.clear();
    redraw();
  }

  function change(changes) {
    adopt(changes);
    acted();
    if (link.looked) link.looked(changes);
  }

  const listeners = [
    [ui.canvas, "keydown", onKey],
    [ui.canvas, "pointerdown", onDown],
    [ui.canvas, "pointermove", onMove],
    [ui.canvas, "pointerup", onUp],
    [ui.canvas, "pointercancel", onUp],
    [ui.canvas, "pointerleave", () => ((state.cross = fingers.size ? state.cross : null), acted())],
    [ui.canvas, "wheel", onWheel],
    [ui.buttons.nearer, "click", () => zoomAt(2, ...focus([plot().width / 2, plot().height / 2]))],
    [ui.buttons.farther, "click", () => zoomAt(0.5, ...focus([plot().width / 2, plot().height / 2]))],
    [ui.buttons.whole, "click", () => (fit(), acted())],
    ...Object.entries(ui.selects).map(([name, select]) => [select, "change", () => change({ [name]: select.value })]),
  ];
  for (const [target, name, action] of listeners) target.addEventListener(name, action, { passive: false });
  const resized = new ResizeObserver(redraw);
  resized.observe(ui.canvas);

  function forget() {
    for (const abort of state.waiting.values()) abort.abort();
    state.waiting.clear();
    state.tiles.clear();
  }

  return {
    show(spec, source) {
      const same = state.spec && state.spec.rows === spec.rows && state.spec.cols === spec.cols;
      if (!state.spec || state.spec.id !== spec.id) forget();
      for (const [key, tile] of state.tiles)
        if (tile) Object.assign(tile, { version: null, counts: null });
        else state.tiles.delete(key);
      state.ranges.clear();
      state.spec = spec;
      state.source = source;
      for (const name of ["show", "scale", "colours"]) ui.selects[name].hidden = Boolean(spec.change);
      ui.canvas.setAttribute("aria-label", `${spec.title}: map of ${spec.rows} queries by ${spec.cols} keys. Arrow keys move, plus and minus zoom, Enter selects.`);
      if (!same || !state.view) {
        state.cross = null;
        fit();
        if (spec.start) Object.assign(state.view, spec.start, { whole: false });
      }
      redraw();
      readOut();
    },
    say,
    adopt: (given) => adopt({ ...FIRST, ...given }),
    where: () => ({ ...state.view }),
    place: () => (state.view ? place() : null),
    follow,
    counts: countsOf,
    // another map's tiles moved the range that both share
    reranged(z) {
      state.ranges.delete(z);
      redraw();
    },
    destroy() {
      for (const [target, name, action] of listeners) target.removeEventListener(name, action);
      for (const abort of state.waiting.values()) abort.abort();
      resized.disconnect();
      if (state.frame) cancelAnimationFrame(state.frame);
      root.replaceChildren();
    },
  };
}

// ---- the page's pieces

const CHOICES = {
  show: ["Show", { weight: "weight", visible: "weight × visible keys", row: "weight ÷ row's largest" }],
  scale: ["Scale", { root: "root scale", log: "log scale", linear: "linear scale" }],
  range: ["Range of colours", { auto: "auto range", full: "whole range" }],
  colours: ["Colours", { cividis: "cividis", viridis: "viridis", magma: "magma", greys: "greys" }],
};

function build(root) {
  root.replaceChildren();
  root.classList.add("attnviz-map");
  const bar = add(root, "div", { className: "bar" });
  const button = (label, sign) => add(bar, "button", { type: "button", title: label, textContent: sign, ariaLabel: label });
  const buttons = { whole: button("Whole map", "⤢"), farther: button("Zoom out", "−"), nearer: button("Zoom in", "+") };
  const selects = {};
  for (const [name, [label, options]] of Object.entries(CHOICES)) {
    selects[name] = add(bar, "select", { name, ariaLabel: label, title: label });
    for (const [value, text] of Object.entries(options)) add(selects[name], "option", { value, textContent: text });
  }
  const legend = add(root, "div", { className: "legend" });
  const canvas = add(root, "canvas", { tabIndex: 0, role: "img" });
  canvas.setAttribute("role", "application");
  const progress = add(root, "progress", { max: 1, value: 0, ariaLabel: "Reading the map" });
  const out = add(root, "output", { className: "out", ariaLive: "polite", textContent: "Point at a cell, or use the arrow keys." });
  return { root, bar, buttons, selects, legend, canvas, progress, out };
}

function add(parent, tag, properties) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  parent.append(element);
  return element;
}

// ---- small things

const numbered = (numbers, at) => (numbers ? numbers[at] : at);

const isolate = (text) => `\u2068${text}\u2069`;

function clip(context, text, width) {
  if (context.measureText(text).width <= width) return isolate(text);
  let short = [...text].slice(0, 40);
  while (short.length > 1 && context.measureText(`${short.join("")}…`).width > width) short.pop();
  return isolate(`${short.join("")}…`);
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= least) || 10 * power;
}

function format(weight) {
  if (weight === 0) return "0";
  return weight >= 0.0995 ? weight.toFixed(2) : weight >= 0.001 ? weight.toPrecision(2) : weight.toExponential(1);
}

const weighed = (code) => `${code === 1 ? "at most " : ""}${format(weightOf(code))}`;

const signed = (change) => `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(Math.abs(change) >= 0.0995 ? 2 : 4)}`;

const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const pack = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

function mix(stops, part) {
  const place = part * (stops.length - 1);
  const at = Math.min(stops.length - 2, Math.floor(place));
  return stops[at].map((value, channel) => Math.round(value + (stops[at + 1][channel] - value) * (place - at)));
}
