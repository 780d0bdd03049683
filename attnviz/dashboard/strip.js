// The text as a row of tokens, shaded by weight. Token text only ever becomes a text node.
const WINDOW_KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function draw(token, index, data) {
  const cell = document.createElement("button");
  cell.type = "button";
  cell.textContent = token.text;
  cell.title = token.title;
  cell.className = token.special ? "token special" : "token";
  cell.style.setProperty("--weight", String(token.shade));
  cell.setAttribute("role", "option");
  cell.setAttribute("aria-selected", String(token.position === data.selected));
  cell.setAttribute("aria-label", token.title);
  cell.tabIndex = token.position === data.selected ? 0 : -1;
  cell.dataset.position = String(token.position);
  return cell;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const list = parentElement.querySelector(".strip");
  const cells = data.tokens.map((token, index) => draw(token, index, data));
  const held = list.contains(list.getRootNode().activeElement);
  list.setAttribute("aria-label", data.label);
  list.replaceChildren(...cells);
  if (!cells.some((cell) => cell.tabIndex === 0) && cells.length) cells[0].tabIndex = 0;
  if (held) cells.find((cell) => cell.tabIndex === 0)?.focus();
  if (list.dataset.selected !== String(data.selected)) {
    list.dataset.selected = String(data.selected);
    const cell = cells.find((one) => one.dataset.position === list.dataset.selected);
    if (cell) list.scrollTop = cell.offsetTop - list.offsetTop - list.clientHeight / 2 + cell.clientHeight / 2;
  }

  list.onclick = (event) => {
    const cell = event.target.closest(".token");
    if (cell) setTriggerValue("pick", Number(cell.dataset.position));
  };
  list.onkeydown = (event) => {
    const step = WINDOW_KEYS[event.key];
    const place = cells.indexOf(event.target);
    if (!step || place < 0) return;
    event.preventDefault();
    const next = cells[Math.min(cells.length - 1, Math.max(0, place + step))];
    cells[place].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}
