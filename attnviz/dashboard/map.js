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

// The other map less the first, made here from the tiles of both.
class Change {
  constructor({ change, ...data }) {
    this.first = new Tiles(data);
    this.other = new Tiles({ ...data, map: change.map });
  }

  read(path, signal) {
    return this.first.read(path, signal);
  }

  async tile(level, down, across, signal) {
    const both = [this.first, this.other].map((tiles) => tiles.tile(level, down, across, signal, () => {}));
    const [first, other] = await Promise.all(both);
    return first.map((code, at) => (code || other[at] ? codeOfChange(weightOf(other[at]) - weightOf(code)) : 0));
  }
}

// Maps that move together, by the name of their group. Every map on the page may bring a copy of this module, so the page
// itself remembers them.
const groups = (window.attnvizGroups ??= new Map());
const beside = (one) => [...(groups.get(one.data?.group) ?? [])].filter((other) => other !== one);
const weighing = (one) => beside(one).filter((other) => !other.data.change && !one.data.change);

function join(one, group) {
  for (const members of groups.values()) if (one.data?.group !== group) members.delete(one);
  if (!group || groups.get(group)?.has(one)) return;
  groups.set(group, (groups.get(group) ?? new Set()).add(one));
  one.joined = true;
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
  const one = { abort: new AbortController(), data: null, known: {}, pick: () => {}, looked: () => {} };
  one.viewer = create(root, (place) => one.pick(place), {
    moved: (place) => beside(one).forEach((other) => other.viewer.follow(place)),
    looked: (changes) => one.looked(changes),
    kept: (level) => weighing(one).forEach((other) => other.viewer.reranged(level)),
    counts: (level) => weighing(one).map((other) => other.viewer.counts(level)),
  });
  one.show = () => {
    const { data } = one;
    const [rowLabels, colLabels] = labels.get(data.axes) ?? [[], []];
    const id = `${data.map} ${data.change?.map ?? ""}`;
    const spec = { visible: [], largest: [], ...data, ...one.known, id, change: data.change?.colours, rowLabels, colLabels };
    one.viewer.show(spec, one.tiles);
  };
  return one;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".map");
  if (!shown.has(root)) shown.set(root, mount(root));
  const one = shown.get(root);
  const named = ({ map, change, capability }) => `${map} ${change?.map} ${capability}`;
  const other = !one.data || named(one.data) !== named(data);
  join(one, data.group);
  one.data = data;
  one.pick = (place) => setTriggerValue("pick", place);
  one.looked = (changes) => setTriggerValue("look", changes);
  const told = JSON.stringify(data.look);
  if (one.told !== told) one.viewer.adopt(data.look);
  one.told = told;
  root.dataset.theme = data.theme;
  if (other) {
    one.abort.abort();
    one.abort = new AbortController();
    one.known = {};
    one.tiles = data.change ? new Change(data) : new Tiles(data);
  }
  one.show();
  const leader = one.joined && beside(one).find((other) => other.viewer.place());
  if (leader) one.viewer.follow(leader.viewer.place());
  one.joined = false;
  if (other) about(one, data, one.tiles).catch((error) => error.name !== "AbortError" && one.viewer.say(error.message));
  return () => {
    one.abort.abort();
    one.viewer.destroy();
    join(one, null);
    shown.delete(root);
  };
}
