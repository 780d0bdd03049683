// Around the viewer of viewer.js, in whose module this stands: tiles, labels and rows come from the server that sent the
// page, with the visitor's secret in a header.
const shown = new WeakMap();
const labels = new Map();

class Tiles {
  constructor({ capability, map, rows, cols }) {
    Object.assign(this, { capability, map, rows, cols });
  }

  async read(path, signal) {
    const headers = { "X-Attnviz-Capability": this.capability };
    const answer = await fetch(`/tiles/${this.map}/${path}`, { headers, signal });
    if (!answer.ok) throw new Error(answer.headers.get("content-type")?.startsWith("text/plain") ? await answer.text() : answer.statusText);
    return answer;
  }

  async tile(level, down, across, signal, part) {
    const cells = (count, at) => Math.min(TILE, Math.ceil(count / 2 ** level) - at * TILE);
    const [height, width] = [cells(this.rows, down), cells(this.cols, across)];
    const answer = await this.read(`${level}/${down}/${across}`, signal);
    const codes = new Uint8Array(height * width);
    let filled = 0;
    for (const reader = answer.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      codes.set(value, filled);
      filled += value.length;
      if (filled < codes.length) part(codes, Math.floor(filled / width));
    }
    if (filled < codes.length) throw new Error("the server stopped in the middle");
    return codes;
  }
}

async function about(one, data, tiles) {
  const { signal } = one.abort;
  const numbers = tiles.read("rows", signal).then((answer) => answer.arrayBuffer());
  if (!labels.has(data.axes)) {
    labels.set(data.axes, await (await tiles.read("labels", signal)).json());
    if (labels.size > 8) labels.delete(labels.keys().next().value);
    one.show();
  }
  const values = new Float32Array(await numbers);
  one.known = { visible: values.subarray(0, data.rows), largest: values.subarray(data.rows) };
  one.show();
}

function mount(root) {
  const one = { abort: new AbortController(), data: null, known: {}, pick: () => {} };
  one.viewer = create(root, (place) => one.pick(place));
  one.show = () => {
    const { data } = one;
    const [rowLabels, colLabels] = labels.get(data.axes) ?? [[], []];
    const spec = { visible: [], largest: [], ...data, ...one.known, id: data.map, rowLabels, colLabels };
    one.viewer.show(spec, one.tiles);
  };
  return one;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".map");
  if (!shown.has(root)) shown.set(root, mount(root));
  const one = shown.get(root);
  const other = one.data?.map !== data.map || one.data?.capability !== data.capability;
  one.data = data;
  one.pick = (place) => setTriggerValue("pick", place);
  root.dataset.theme = data.theme;
  if (other) {
    one.abort.abort();
    one.abort = new AbortController();
    one.known = {};
    one.tiles = new Tiles(data);
  }
  one.show();
  if (other) about(one, data, one.tiles).catch((error) => error.name !== "AbortError" && one.viewer.say(error.message));
  return () => {
    one.abort.abort();
    one.viewer.destroy();
    shown.delete(root);
  };
}
